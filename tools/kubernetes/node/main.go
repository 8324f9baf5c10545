// A node that only pretends to run pods, for a cluster that has none: it plays scheduler and kubelet over the API, and
// serves the kubelet's /exec, by which end-to-end suites end their pods
// (`kubectl exec POD -- sh -c 'curl http://PODIP:8080/exit?code=N'`).
//
// Nodes are registered (nodes.go), ungated pods bound by node selector and resources (scheduler.go), and walked through
// the statuses that a kubelet writes (life.go, status.go); deleted pods get their last status first. No container is run:
// what an image and its arguments would do is decided by behaviourOf. There are no probes, volumes or networks, and no
// affinity, taints or preemption; init containers count as done at once.
package main

import (
	"context"
	"flag"
	"log"
	"strings"
	"sync"
	"sync/atomic"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/clientcmd"
)

type nodeFlags []string

func (n *nodeFlags) String() string     { return strings.Join(*n, " ") }
func (n *nodeFlags) Set(v string) error { *n = append(*n, v); return nil }

var (
	kubeconfig = flag.String("kubeconfig", "", "kubeconfig of the cluster to serve")
	kctx       = flag.String("context", "", "context in it (default: current)")
	port       = flag.Int("port", 0, "loopback port of the kubelet endpoint")
	podCIDR    = flag.String("pod-prefix", "10.244", "first two octets of pod addresses")
	startMS    = flag.Int("start-ms", 300, "from bound to running")
	stopMS     = flag.Int("stop-ms", 100, "from signal to terminal status")
	capacity   = flag.String("capacity", "cpu=16,memory=64Gi,ephemeral-storage=200Gi,pods=200", "allocatable of each node")
	nodes      nodeFlags
)

const schedulerName = "default-scheduler"

func main() {
	flag.Var(&nodes, "node", "NAME[:label=value,...] of a node to register; may be repeated")
	flag.Parse()
	log.SetFlags(log.Ltime | log.Lmicroseconds)
	cfg, err := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(
		&clientcmd.ClientConfigLoadingRules{ExplicitPath: *kubeconfig}, &clientcmd.ConfigOverrides{CurrentContext: *kctx}).ClientConfig()
	if err != nil {
		log.Fatal(err)
	}
	cfg.QPS, cfg.Burst = 500, 1000
	cfg.UserAgent = "simulated-node"
	cs, err := kubernetes.NewForConfig(cfg)
	if err != nil {
		log.Fatal(err)
	}
	s := &sim{cs: cs, pods: map[types.UID]*podState{}, assumed: map[types.UID]string{}, wake: make(chan struct{}, 1)}
	s.taken = map[string]bool{}
	old, err := cs.CoreV1().Pods("").List(context.Background(), metav1.ListOptions{})
	if err != nil {
		log.Fatal(err)
	}
	for _, p := range old.Items {
		s.taken[p.Status.PodIP] = true
	}
	addr, err := s.serveKubelet()
	if err != nil {
		log.Fatal(err)
	}
	for _, n := range nodes {
		if err := s.register(n, addr.Port); err != nil {
			log.Fatalf("node %s: %v", n, err)
		}
	}
	s.run()
}

type sim struct {
	cs      kubernetes.Interface
	lister  corelisters.PodLister
	mu      sync.Mutex
	pods    map[types.UID]*podState
	assumed map[types.UID]string
	nextIP  int
	taken   map[string]bool // addresses of pods that were there when we started
	wake    chan struct{}
}

// podState is what the kubelet part knows of one bound pod.
type podState struct {
	uid     types.UID
	ns      string
	name    string
	ip      string
	deleted chan struct{} // closed when a deletion timestamp is seen
	gone    chan struct{} // closed when the object is gone
	exit    chan int      // exit code asked for over exec
	up      atomic.Bool   // containers run; true before the API server says so
	del     sync.Once
}
