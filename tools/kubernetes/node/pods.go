package main

import (
	"fmt"
	"log"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/informers"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"
)

func (s *sim) run() {
	f := informers.NewSharedInformerFactory(s.cs, 0)
	inf := f.Core().V1().Pods()
	nodeInf := f.Core().V1().Nodes().Informer()
	s.lister = inf.Lister()
	_, err := inf.Informer().AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    func(o any) { s.see(o.(*corev1.Pod)) },
		UpdateFunc: func(_, o any) { s.see(o.(*corev1.Pod)) },
		DeleteFunc: func(o any) {
			if t, ok := o.(cache.DeletedFinalStateUnknown); ok {
				o = t.Obj
			}
			if p, ok := o.(*corev1.Pod); ok {
				s.forget(p.UID)
			}
		},
	})
	if err != nil {
		log.Fatal(err)
	}
	stop := make(chan struct{})
	f.Start(stop)
	f.WaitForCacheSync(stop)
	log.Print("in sync")
	tick := time.NewTicker(2 * time.Second)
	for {
		select {
		case <-s.wake:
		case <-tick.C:
		}
		s.schedule(corelisters.NewNodeLister(nodeInf.GetIndexer()))
	}
}

func (s *sim) poke() {
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

func (s *sim) forget(uid types.UID) {
	s.mu.Lock()
	st := s.pods[uid]
	delete(s.pods, uid)
	delete(s.assumed, uid)
	s.mu.Unlock()
	if st != nil {
		st.del.Do(func() { close(st.deleted) })
		close(st.gone)
	}
	s.poke()
}

func (s *sim) see(p *corev1.Pod) {
	if p.Spec.NodeName == "" {
		s.poke()
		return
	}
	if !s.ours(p.Spec.NodeName) {
		return
	}
	s.mu.Lock()
	st, known := s.pods[p.UID]
	if !known {
		st = &podState{uid: p.UID, ns: p.Namespace, name: p.Name, ip: p.Status.PodIP, deleted: make(chan struct{}), gone: make(chan struct{}), exit: make(chan int, 1)}
		if st.ip == "" {
			st.ip = s.newIP()
		}
		s.pods[p.UID] = st
	}
	s.mu.Unlock()
	if p.DeletionTimestamp != nil {
		st.del.Do(func() { close(st.deleted) })
	}
	if !known {
		go s.live(p.DeepCopy(), st)
	}
	if terminal(p) {
		s.poke()
	}
}

func (s *sim) newIP() string {
	for {
		s.nextIP++
		ip := fmt.Sprintf("%s.%d.%d", *podCIDR, s.nextIP/250%250, s.nextIP%250+2)
		if !s.taken[ip] {
			return ip
		}
	}
}

func (s *sim) ours(node string) bool {
	for _, n := range nodes {
		if name, _, _ := strings.Cut(n, ":"); name == node {
			return true
		}
	}
	return false
}

func terminal(p *corev1.Pod) bool {
	return p.Status.Phase == corev1.PodSucceeded || p.Status.Phase == corev1.PodFailed
}
