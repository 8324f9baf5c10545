package main

import (
	"context"
	"fmt"
	"log"
	"regexp"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// behaviour of one container: how long it runs (<0: until told) and what it ends with.
type behaviour struct {
	run      time.Duration
	code     int
	termCode int           // exit code on SIGTERM
	termTime time.Duration // how long it takes to act on SIGTERM (<0: ignores it, SIGKILL after the grace period)
}

var sleepRE = regexp.MustCompile(`\bsleep\s+([0-9.]+)([smh]?)`)

func behaviourOf(p *corev1.Pod, c *corev1.Container) behaviour {
	b := behaviour{run: -1}
	if v, ok := p.Annotations["simulated-node/run-ms"]; ok {
		n, _ := strconv.Atoi(v)
		b.run = time.Duration(n) * time.Millisecond
		b.code, _ = strconv.Atoi(p.Annotations["simulated-node/exit-code"])
		return b
	}
	words := append(append([]string{}, c.Command...), c.Args...)
	for _, w := range words {
		switch w {
		case "entrypoint-tester":
			return behaviour{}
		case "netexec", "pause":
			return b
		case "test-webserver": // no signal handler: the Go runtime of a pid 1 ends with 2
			b.termCode = 2
			return b
		}
	}
	all := strings.Join(words, " ")
	if m := sleepRE.FindStringSubmatch(all); m != nil {
		f, _ := strconv.ParseFloat(m[1], 64)
		unit := map[string]time.Duration{"": time.Second, "s": time.Second, "m": time.Minute, "h": time.Hour}[m[2]]
		b.run, b.termCode, b.termTime = time.Duration(f*float64(unit)), 137, -1
		return b
	}
	switch all {
	case "true", "/bin/true":
		return behaviour{}
	case "false", "/bin/false":
		return behaviour{code: 1}
	}
	return b
}

type containerState struct {
	c        *corev1.Container
	b        behaviour
	restarts int32
	started  metav1.Time
	running  bool
	done     bool
	code     int
	ended    metav1.Time
	id       string
	last     *corev1.ContainerStateTerminated
}

func (cs *containerState) terminated() *corev1.ContainerStateTerminated {
	reason := "Completed"
	if cs.code != 0 {
		reason = "Error"
	}
	return &corev1.ContainerStateTerminated{ExitCode: int32(cs.code), Reason: reason, StartedAt: cs.started, FinishedAt: cs.ended, ContainerID: cs.id}
}

type ended struct{ idx, code, gen int }

func (s *sim) live(p *corev1.Pod, st *podState) {
	key := p.Namespace + "/" + p.Name
	start := metav1.Now()
	if p.Status.StartTime != nil {
		start = *p.Status.StartTime
	}
	if terminal(p) {
		select {
		case <-st.deleted:
			s.finalDelete(p)
		case <-st.gone:
		}
		return
	}
	var cts []*containerState
	for i := range p.Spec.Containers {
		c := &p.Spec.Containers[i]
		cts = append(cts, &containerState{c: c, b: behaviourOf(p, c)})
	}
	ends := make(chan ended, 16)
	done := make(chan struct{})
	defer close(done)
	begin := func(i int) {
		cs := cts[i]
		cs.running, cs.done, cs.started = true, false, metav1.Now()
		cs.id = fmt.Sprintf("simulated-node://%s-%d-%d", p.UID, i, cs.restarts)
		if cs.b.run >= 0 {
			gen := int(cs.restarts)
			time.AfterFunc(cs.b.run, func() {
				select {
				case ends <- ended{i, cs.b.code, gen}:
				case <-done:
				}
			})
		}
	}
	resumed := p.Status.Phase == corev1.PodRunning
	if !resumed {
		s.writeStatus(p, st, cts, start, corev1.PodPending, false)
		select {
		case <-time.After(time.Duration(*startMS) * time.Millisecond):
		case <-st.deleted:
		case <-st.gone:
			return
		}
	}
	select {
	case <-st.deleted: // deleted before anything ran
		for _, cs := range cts {
			cs.done, cs.code, cs.ended, cs.started = true, 137, metav1.Now(), start
		}
		s.writeStatus(p, st, cts, start, corev1.PodFailed, false)
		s.finalDelete(p)
		return
	default:
	}
	log.Printf("%s running %s %v", key, st.ip, words(p))
	st.up.Store(true)
	defer st.up.Store(false)
	for i := range cts {
		begin(i)
	}
	if !resumed {
		s.writeStatus(p, st, cts, start, corev1.PodRunning, true)
	}
	restartAt := make(chan int, 16)
	for {
		var phase corev1.PodPhase
		select {
		case <-st.gone:
			return
		case <-st.deleted:
			grace := int64(30)
			if cur, err := s.lister.Pods(p.Namespace).Get(p.Name); err == nil && cur.DeletionGracePeriodSeconds != nil {
				grace = *cur.DeletionGracePeriodSeconds
			}
			wait := time.Duration(*stopMS) * time.Millisecond
			for _, cs := range cts {
				if cs.running && cs.b.termTime < 0 {
					wait = time.Duration(grace) * time.Second
				}
			}
			select {
			case <-time.After(wait):
			case <-st.gone:
				return
			}
			failed := false
			for _, cs := range cts {
				if cs.running {
					cs.running, cs.done, cs.code, cs.ended = false, true, cs.b.termCode, metav1.Now()
				}
				failed = failed || cs.code != 0
			}
			phase = corev1.PodSucceeded
			if failed {
				phase = corev1.PodFailed
			}
			s.writeStatus(p, st, cts, start, phase, false)
			log.Printf("%s deleted, %s", key, phase)
			s.finalDelete(p)
			return
		case i := <-restartAt:
			cts[i].restarts++
			begin(i)
			s.writeStatus(p, st, cts, start, corev1.PodRunning, true)
			continue
		case code := <-st.exit:
			for i, cs := range cts {
				if cs.running {
					cs.running, cs.done, cs.code, cs.ended = false, true, code, metav1.Now()
					s.maybeRestart(p, cs, i, restartAt, done)
					break // exec addressed the pod's only interesting container
				}
			}
		case e := <-ends:
			cs := cts[e.idx]
			if !cs.running || int(cs.restarts) != e.gen {
				continue
			}
			cs.running, cs.done, cs.code, cs.ended = false, true, e.code, metav1.Now()
			s.maybeRestart(p, cs, e.idx, restartAt, done)
		}
		phase = corev1.PodSucceeded
		for _, cs := range cts {
			if cs.running || !cs.done || restarts(p, cs) {
				phase = corev1.PodRunning
				break
			}
			if cs.code != 0 {
				phase = corev1.PodFailed
			}
		}
		s.writeStatus(p, st, cts, start, phase, phase == corev1.PodRunning)
		if phase != corev1.PodRunning {
			st.up.Store(false)
			log.Printf("%s ended, %s", key, phase)
			s.poke()
			select {
			case <-st.deleted:
				s.finalDelete(p)
			case <-st.gone:
			}
			return
		}
	}
}

func words(p *corev1.Pod) []string {
	c := p.Spec.Containers[0]
	return append(append([]string{}, c.Command...), c.Args...)
}

func restarts(p *corev1.Pod, cs *containerState) bool {
	switch p.Spec.RestartPolicy {
	case corev1.RestartPolicyNever:
		return false
	case corev1.RestartPolicyOnFailure:
		return cs.code != 0
	}
	return true
}

func (s *sim) maybeRestart(p *corev1.Pod, cs *containerState, i int, at chan<- int, done <-chan struct{}) {
	if !restarts(p, cs) {
		return
	}
	cs.last = cs.terminated()
	backoff := time.Second
	for n := int32(0); n < cs.restarts && backoff < 5*time.Minute; n++ {
		backoff = max(10*time.Second, backoff*2)
	}
	time.AfterFunc(backoff, func() {
		select {
		case at <- i:
		case <-done:
		}
	})
}

func (s *sim) finalDelete(p *corev1.Pod) {
	zero := int64(0)
	for try := 0; try < 10; try++ {
		err := s.cs.CoreV1().Pods(p.Namespace).Delete(context.Background(), p.Name,
			metav1.DeleteOptions{GracePeriodSeconds: &zero, Preconditions: &metav1.Preconditions{UID: &p.UID}})
		if err == nil || apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
			return
		}
		time.Sleep(100 * time.Millisecond)
	}
}
