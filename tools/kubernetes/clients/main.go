// Command clients asks an API server what Go programs ask it: through client-go's informers, and through a manager of
// controller-runtime. It prints a line for every part that went as it goes on Kubernetes, and fails at the first that
// does not.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

// A part is one way in which Go programs use a cluster.
type part struct {
	name string
	run  func(ctx context.Context, config *rest.Config, namespace string) error
}

func main() {
	if err := run(os.Args); err != nil {
		fmt.Fprintln(os.Stderr, "error:", err)
		os.Exit(1)
	}
}

func run(arguments []string) error {
	if len(arguments) != 3 {
		return errors.New("usage: clients KUBECONFIG NAMESPACE")
	}
	config, err := clientcmd.BuildConfigFromFlags("", arguments[1])
	if err != nil {
		return fmt.Errorf("read the kubeconfig: %w", err)
	}
	config.QPS, config.Burst = 500, 1000
	ctx, cancel := context.WithTimeout(context.Background(), 90*time.Second)
	defer cancel()
	for _, part := range []part{
		{"typed informers", typedInformers},
		{"dynamic and metadata informers", otherInformers},
		{"controller-runtime client", runtimeClient},
		{"controller-runtime manager", runtimeManager},
	} {
		if err := part.run(ctx, config, arguments[2]); err != nil {
			return fmt.Errorf("%s: %w", part.name, err)
		}
		fmt.Println("ok", part.name)
	}
	return nil
}

// Until waits for something that others bring about.
func until(ctx context.Context, what string, done func() (bool, error)) error {
	ctx, cancel := context.WithTimeout(ctx, 20*time.Second)
	defer cancel()
	for {
		ok, err := done()
		if err != nil {
			return fmt.Errorf("%s: %w", what, err)
		}
		if ok {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%s: not within 20 s", what)
		case <-time.After(20 * time.Millisecond):
		}
	}
}
