package main

import (
	"context"
	"errors"
	"fmt"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/log/zap"
	"sigs.k8s.io/controller-runtime/pkg/metrics/server"
)

// RuntimeClient reads and writes without a cache.
func runtimeClient(ctx context.Context, config *rest.Config, namespace string) error {
	direct, err := client.New(config, client.Options{Scheme: scheme.Scheme})
	if err != nil {
		return err
	}
	made := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "direct", Namespace: namespace}}
	if err := direct.Create(ctx, made, client.FieldOwner("clients")); err != nil {
		return fmt.Errorf("create: %w", err)
	}
	if err := direct.Create(ctx, made.DeepCopy()); !apierrors.IsAlreadyExists(err) && !apierrors.IsInternalError(err) && err == nil {
		return errors.New("the same map was made twice")
	}
	before := made.DeepCopy()
	made.Data = map[string]string{"a": "1"}
	if err := direct.Patch(ctx, made, client.MergeFrom(before)); err != nil {
		return fmt.Errorf("patch: %w", err)
	}
	changed, err := controllerutil.CreateOrUpdate(ctx, direct, made, func() error {
		made.Data["b"] = "2"
		return nil
	})
	if err != nil || changed != controllerutil.OperationResultUpdated {
		return fmt.Errorf("create or update said %s: %w", changed, err)
	}
	list := &corev1.ConfigMapList{}
	if err := direct.List(ctx, list, client.InNamespace(namespace), client.Limit(1)); err != nil || len(list.Items) != 1 {
		return fmt.Errorf("a page of %d: %w", len(list.Items), err)
	}
	partial := &metav1.PartialObjectMetadata{}
	partial.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("ConfigMap"))
	if err := direct.Get(ctx, client.ObjectKeyFromObject(made), partial); err != nil || partial.UID != made.UID {
		return fmt.Errorf("metadata of %q: %w", partial.UID, err)
	}
	if err := direct.DeleteAllOf(ctx, &corev1.ConfigMap{}, client.InNamespace(namespace)); err != nil {
		return fmt.Errorf("delete all: %w", err)
	}
	if err := direct.Get(ctx, client.ObjectKeyFromObject(made), made); !apierrors.IsNotFound(err) {
		return fmt.Errorf("a deleted map: %w", err)
	}
	return nil
}

// Marker writes down on every Job that it has seen it, in the Job and in its status.
type marker struct {
	client.Client
}

const mark = "example.com/seen"

func (m *marker) Reconcile(ctx context.Context, request ctrl.Request) (ctrl.Result, error) {
	job := &batchv1.Job{}
	if err := m.Get(ctx, request.NamespacedName, job); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	if job.Annotations[mark] == "" {
		before := job.DeepCopy()
		job.Annotations = map[string]string{mark: "yes"}
		return ctrl.Result{}, m.Patch(ctx, job, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{}))
	}
	if job.Status.Active == 0 {
		job.Status.Active = 1
		return ctrl.Result{}, m.Status().Update(ctx, job)
	}
	return ctrl.Result{}, nil
}

// RuntimeManager runs a controller as operators do: with a leader's lease, a cache and a queue.
func runtimeManager(ctx context.Context, config *rest.Config, namespace string) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	log.SetLogger(zap.New(zap.UseDevMode(true)))
	manager, err := ctrl.NewManager(config, ctrl.Options{
		Scheme:                        scheme.Scheme,
		Metrics:                       server.Options{BindAddress: "0"},
		Cache:                         cache.Options{DefaultNamespaces: map[string]cache.Config{namespace: {}}},
		LeaderElection:                true,
		LeaderElectionID:              "clients",
		LeaderElectionNamespace:       namespace,
		LeaderElectionReleaseOnCancel: true,
	})
	if err != nil {
		return err
	}
	reconciler := &marker{Client: manager.GetClient()}
	if err := ctrl.NewControllerManagedBy(manager).For(&batchv1.Job{}).Complete(reconciler); err != nil {
		return err
	}
	ended := make(chan error, 1)
	go func() { ended <- manager.Start(ctx) }()
	job := &batchv1.Job{
		ObjectMeta: metav1.ObjectMeta{Name: "managed", Namespace: namespace},
		Spec: batchv1.JobSpec{Template: corev1.PodTemplateSpec{Spec: corev1.PodSpec{
			RestartPolicy: corev1.RestartPolicyNever,
			Containers:    []corev1.Container{{Name: "c", Image: "i"}},
		}}},
	}
	if err := manager.GetClient().Create(ctx, job); err != nil {
		return fmt.Errorf("create: %w", err)
	}
	err = until(ctx, "a reconciled job", func() (bool, error) {
		found := &batchv1.Job{}
		err := manager.GetAPIReader().Get(ctx, client.ObjectKeyFromObject(job), found)
		return err == nil && found.Annotations[mark] == "yes" && found.Status.Active == 1, err
	})
	if err != nil {
		return err
	}
	cancel()
	return <-ended
}
