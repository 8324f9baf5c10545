package main

import (
	"context"
	"encoding/json"
	"log"
	"sort"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	corelisters "k8s.io/client-go/listers/core/v1"
)

func requests(p *corev1.Pod) corev1.ResourceList {
	sum := corev1.ResourceList{corev1.ResourcePods: resource.MustParse("1")}
	for _, c := range p.Spec.Containers {
		for k, q := range c.Resources.Requests {
			t := sum[k]
			t.Add(q)
			sum[k] = t
		}
	}
	return sum
}

func (s *sim) schedule(nl corelisters.NodeLister) {
	all, err := s.lister.List(labels.Everything())
	if err != nil {
		return
	}
	nodeObjs, _ := nl.List(labels.Everything())
	sort.Slice(nodeObjs, func(i, j int) bool { return nodeObjs[i].Name < nodeObjs[j].Name })
	used := map[string]corev1.ResourceList{}
	add := func(node string, r corev1.ResourceList) {
		if used[node] == nil {
			used[node] = corev1.ResourceList{}
		}
		for k, q := range r {
			t := used[node][k]
			t.Add(q)
			used[node][k] = t
		}
	}
	var pending []*corev1.Pod
	s.mu.Lock()
	for _, p := range all {
		node := p.Spec.NodeName
		if node != "" {
			delete(s.assumed, p.UID)
		} else if node = s.assumed[p.UID]; node == "" {
			if len(p.Spec.SchedulingGates) == 0 && p.DeletionTimestamp == nil && !terminal(p) && (p.Spec.SchedulerName == schedulerName || p.Spec.SchedulerName == "") {
				pending = append(pending, p)
			}
			continue
		}
		if !terminal(p) {
			add(node, requests(p))
		}
	}
	s.mu.Unlock()
	sort.Slice(pending, func(i, j int) bool { return pending[i].CreationTimestamp.Before(&pending[j].CreationTimestamp) })
	for _, p := range pending {
		req := requests(p)
		var picked, why string
		for _, n := range nodeObjs {
			if !s.ours(n.Name) || n.Spec.Unschedulable {
				continue
			}
			if !labels.SelectorFromSet(p.Spec.NodeSelector).Matches(labels.Set(n.Labels)) {
				why = "node(s) didn't match Pod's node affinity/selector"
				continue
			}
			if r := lacks(n, used[n.Name], req); r != "" {
				why = "Insufficient " + r
				continue
			}
			picked = n.Name
			break
		}
		if picked == "" {
			s.unschedulable(p, why)
			continue
		}
		b := &corev1.Binding{ObjectMeta: metav1.ObjectMeta{Namespace: p.Namespace, Name: p.Name, UID: p.UID}, Target: corev1.ObjectReference{Kind: "Node", Name: picked}}
		if err := s.cs.CoreV1().Pods(p.Namespace).Bind(context.Background(), b, metav1.CreateOptions{}); err != nil {
			if !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
				log.Printf("bind %s/%s: %v", p.Namespace, p.Name, err)
			}
			continue
		}
		s.mu.Lock()
		s.assumed[p.UID] = picked
		s.mu.Unlock()
		add(picked, req)
	}
}

func lacks(n *corev1.Node, used, req corev1.ResourceList) string {
	for k, q := range req {
		if q.IsZero() {
			continue
		}
		have, ok := n.Status.Allocatable[k]
		if !ok {
			return string(k)
		}
		t := used[k].DeepCopy()
		t.Add(q)
		if t.Cmp(have) > 0 {
			return string(k)
		}
	}
	return ""
}

func (s *sim) unschedulable(p *corev1.Pod, why string) {
	msg := "0/" + strconv.Itoa(len(nodes)) + " nodes are available: " + why + "."
	for _, c := range p.Status.Conditions {
		if c.Type == corev1.PodScheduled && c.Status == corev1.ConditionFalse && c.Reason == corev1.PodReasonUnschedulable && c.Message == msg {
			return
		}
	}
	patch, _ := json.Marshal(map[string]any{"metadata": map[string]any{"uid": p.UID}, "status": map[string]any{"conditions": []any{map[string]any{
		"type": "PodScheduled", "status": "False", "reason": corev1.PodReasonUnschedulable, "message": msg, "lastTransitionTime": metav1.Now()}}}})
	_, err := s.cs.CoreV1().Pods(p.Namespace).Patch(context.Background(), p.Name, types.StrategicMergePatchType, patch, metav1.PatchOptions{}, "status")
	if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
		log.Printf("unschedulable %s/%s: %v", p.Namespace, p.Name, err)
	}
}
