package main

import (
	"context"
	"encoding/json"
	"fmt"
	"log"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/strategicpatch"
)

// writeStatus patches the pod's status as a kubelet of v1.35 would word it.
func (s *sim) writeStatus(p *corev1.Pod, st *podState, cts []*containerState, start metav1.Time, phase corev1.PodPhase, ready bool) {
	api := s.cs.CoreV1().Pods(p.Namespace)
	for try := 0; try < 10; try++ {
		// Read from the server, as the kubelet does: a patch computed from the informer's copy, which may not hold our own
		// last write yet, leaves out fields that look unchanged.
		cur, err := api.Get(context.Background(), p.Name, metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			return
		}
		if err != nil {
			time.Sleep(100 * time.Millisecond)
			continue
		}
		if cur.UID != p.UID {
			return
		}
		next := s.statusOf(cur, st, cts, start, phase, ready)
		oldB, _ := json.Marshal(corev1.Pod{Status: cur.Status})
		newB, _ := json.Marshal(corev1.Pod{ObjectMeta: metav1.ObjectMeta{UID: p.UID}, Status: next})
		patch, err := strategicpatch.CreateTwoWayMergePatch(oldB, newB, corev1.Pod{})
		if err != nil {
			log.Printf("status patch %s/%s: %v", p.Namespace, p.Name, err)
			return
		}
		_, err = api.Patch(context.Background(), p.Name, types.StrategicMergePatchType, patch, metav1.PatchOptions{}, "status")
		if err == nil || apierrors.IsNotFound(err) {
			return
		}
		if try == 9 {
			log.Printf("status %s/%s: %v", p.Namespace, p.Name, err)
		}
		time.Sleep(50 * time.Millisecond)
	}
}

func (s *sim) statusOf(cur *corev1.Pod, st *podState, cts []*containerState, start metav1.Time, phase corev1.PodPhase, ready bool) corev1.PodStatus {
	next := *cur.Status.DeepCopy()
	next.Phase = phase
	next.ObservedGeneration = cur.Generation
	next.StartTime = &start
	next.HostIP = "127.0.0.1"
	next.HostIPs = []corev1.HostIP{{IP: "127.0.0.1"}}
	if phase != corev1.PodPending {
		next.PodIP = st.ip
		next.PodIPs = []corev1.PodIP{{IP: st.ip}}
	}
	next.ContainerStatuses = nil
	var notReady []string
	for _, cs := range cts {
		started := cs.running
		c := corev1.ContainerStatus{Name: cs.c.Name, Image: cs.c.Image, RestartCount: cs.restarts, Ready: cs.running, Started: &started, ContainerID: cs.id}
		switch {
		case cs.running:
			c.State.Running = &corev1.ContainerStateRunning{StartedAt: cs.started}
			c.ImageID = cs.c.Image
		case cs.done && phase == corev1.PodRunning && restarts(cur, cs):
			c.State.Waiting = &corev1.ContainerStateWaiting{Reason: "CrashLoopBackOff"}
			c.ImageID = cs.c.Image
		case cs.done:
			c.State.Terminated = cs.terminated()
			c.ImageID = cs.c.Image
		default:
			c.State.Waiting = &corev1.ContainerStateWaiting{Reason: "ContainerCreating"}
		}
		if cs.last != nil && cs.running {
			c.LastTerminationState.Terminated = cs.last
		}
		if !c.Ready {
			notReady = append(notReady, cs.c.Name)
		}
		next.ContainerStatuses = append(next.ContainerStatuses, c)
	}
	next.InitContainerStatuses = nil
	for _, ic := range cur.Spec.InitContainers {
		next.InitContainerStatuses = append(next.InitContainerStatuses, corev1.ContainerStatus{Name: ic.Name, Image: ic.Image, Ready: true,
			State: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{Reason: "Completed", StartedAt: start, FinishedAt: start}}})
	}
	cond := func(t corev1.PodConditionType, ok bool, reason, msg string) corev1.PodCondition {
		c := corev1.PodCondition{Type: t, Status: corev1.ConditionFalse, Reason: reason, Message: msg, ObservedGeneration: cur.Generation, LastTransitionTime: metav1.Now()}
		if ok {
			c.Status = corev1.ConditionTrue
		}
		for _, o := range cur.Status.Conditions {
			if o.Type == t && o.Status == c.Status {
				c.LastTransitionTime = o.LastTransitionTime
			}
		}
		return c
	}
	var own []corev1.PodCondition
	switch phase {
	case corev1.PodSucceeded:
		own = []corev1.PodCondition{cond(corev1.PodReadyToStartContainers, false, "", ""), cond(corev1.PodInitialized, true, "PodCompleted", ""),
			cond(corev1.PodReady, false, "PodCompleted", ""), cond(corev1.ContainersReady, false, "PodCompleted", "")}
	case corev1.PodFailed:
		own = []corev1.PodCondition{cond(corev1.PodReadyToStartContainers, false, "", ""), cond(corev1.PodInitialized, true, "", ""),
			cond(corev1.PodReady, false, "PodFailed", ""), cond(corev1.ContainersReady, false, "PodFailed", "")}
	default:
		all := ready && len(notReady) == 0
		reason, msg := "", ""
		if !all {
			reason, msg = "ContainersNotReady", fmt.Sprintf("containers with unready status: [%s]", strings.Join(notReady, " "))
		}
		own = []corev1.PodCondition{cond(corev1.PodReadyToStartContainers, phase == corev1.PodRunning, "", ""), cond(corev1.PodInitialized, true, "", ""),
			cond(corev1.PodReady, all, reason, msg), cond(corev1.ContainersReady, all, reason, msg)}
	}
	own = append(own, cond(corev1.PodScheduled, true, "", ""))
	mine := map[corev1.PodConditionType]bool{}
	for _, c := range own {
		mine[c.Type] = true
	}
	for _, c := range cur.Status.Conditions {
		if !mine[c.Type] {
			own = append(own, c)
		}
	}
	next.Conditions = own
	return next
}
