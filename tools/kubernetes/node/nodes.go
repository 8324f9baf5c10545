package main

import (
	"context"
	"log"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func (s *sim) register(spec string, kubeletPort int) error {
	ctx := context.Background()
	name, ls, _ := strings.Cut(spec, ":")
	lm := map[string]string{"kubernetes.io/hostname": name, "kubernetes.io/os": "linux", "kubernetes.io/arch": "amd64"}
	for _, kv := range strings.Split(ls, ",") {
		if k, v, ok := strings.Cut(kv, "="); ok {
			lm[k] = v
		}
	}
	alloc := corev1.ResourceList{}
	for _, kv := range strings.Split(*capacity, ",") {
		if k, v, ok := strings.Cut(kv, "="); ok {
			alloc[corev1.ResourceName(k)] = resource.MustParse(v)
		}
	}
	api := s.cs.CoreV1().Nodes()
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: lm}}
	if _, err := api.Create(ctx, n, metav1.CreateOptions{}); err != nil && !apierrors.IsAlreadyExists(err) {
		return err
	}
	now := metav1.Now()
	for try := 0; ; try++ {
		cur, err := api.Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		for k, v := range lm {
			if cur.Labels == nil {
				cur.Labels = map[string]string{}
			}
			cur.Labels[k] = v
		}
		cur.Spec.Taints = nil // TaintNodesByCondition adds not-ready on create; no node lifecycle controller takes it off
		cur.Spec.PodCIDR = ""
		if cur, err = api.Update(ctx, cur, metav1.UpdateOptions{}); err == nil {
			cur.Status.Capacity, cur.Status.Allocatable = alloc, alloc
			cur.Status.Addresses = []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: "127.0.0.1"}}
			cur.Status.DaemonEndpoints.KubeletEndpoint.Port = int32(kubeletPort)
			cur.Status.NodeInfo = corev1.NodeSystemInfo{KubeletVersion: "v1.35.8", OperatingSystem: "linux", Architecture: "amd64", ContainerRuntimeVersion: "simulated-node://0"}
			cond := func(t corev1.NodeConditionType, st corev1.ConditionStatus, reason string) corev1.NodeCondition {
				return corev1.NodeCondition{Type: t, Status: st, Reason: reason, LastHeartbeatTime: now, LastTransitionTime: now}
			}
			cur.Status.Conditions = []corev1.NodeCondition{
				cond(corev1.NodeMemoryPressure, corev1.ConditionFalse, "KubeletHasSufficientMemory"),
				cond(corev1.NodeDiskPressure, corev1.ConditionFalse, "KubeletHasNoDiskPressure"),
				cond(corev1.NodePIDPressure, corev1.ConditionFalse, "KubeletHasSufficientPID"),
				cond(corev1.NodeReady, corev1.ConditionTrue, "KubeletReady"),
			}
			if _, err = api.UpdateStatus(ctx, cur, metav1.UpdateOptions{}); err == nil {
				log.Printf("node %s registered", name)
				return nil
			}
		}
		if try == 10 {
			return err
		}
		time.Sleep(100 * time.Millisecond)
	}
}
