package main

import (
	"context"
	"errors"
	"fmt"
	"sync"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/dynamic/dynamicinformer"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/metadata/metadatainformer"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
)

// Seen counts what an informer was told, by name of the object.
type seen struct {
	mutex                   sync.Mutex
	added, changed, deleted map[string]int
}

func (s *seen) handler() cache.ResourceEventHandlerFuncs {
	s.added, s.changed, s.deleted = map[string]int{}, map[string]int{}, map[string]int{}
	count := func(in map[string]int, object any) {
		s.mutex.Lock()
		defer s.mutex.Unlock()
		if meta, ok := object.(metav1.Object); ok {
			in[meta.GetName()]++
		}
	}
	return cache.ResourceEventHandlerFuncs{
		AddFunc:    func(object any) { count(s.added, object) },
		UpdateFunc: func(_, object any) { count(s.changed, object) },
		DeleteFunc: func(object any) { count(s.deleted, object) },
	}
}

func (s *seen) all(name string, added, changed, deleted int) bool {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	return s.added[name] == added && s.changed[name] == changed && s.deleted[name] == deleted
}

// TypedInformers watches what is there and what comes, and writes in protobuf, as every generated client does.
func typedInformers(ctx context.Context, config *rest.Config, namespace string) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return err
	}
	maps := client.CoreV1().ConfigMaps(namespace)
	there := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "there", Labels: map[string]string{"app": "x"}}}
	if _, err := maps.Create(ctx, there, metav1.CreateOptions{}); err != nil {
		return fmt.Errorf("create: %w", err)
	}
	factory := informers.NewSharedInformerFactoryWithOptions(client, 0, informers.WithNamespace(namespace))
	informer, heard := factory.Core().V1().ConfigMaps(), &seen{}
	if _, err := informer.Informer().AddEventHandler(heard.handler()); err != nil {
		return err
	}
	jobs := factory.Batch().V1().Jobs().Lister()
	factory.Start(ctx.Done())
	for kind, synced := range factory.WaitForCacheSync(ctx.Done()) {
		if !synced {
			return fmt.Errorf("the cache of %v did not sync", kind)
		}
	}
	if found, err := informer.Lister().ConfigMaps(namespace).List(labels.SelectorFromSet(there.Labels)); err != nil || len(found) != 1 {
		return fmt.Errorf("the lister found %d maps: %w", len(found), err)
	}
	if err := changeMap(ctx, client, namespace); err != nil {
		return err
	}
	if err := until(ctx, "events of a map", func() (bool, error) { return heard.all("goes", 1, 1, 1), nil }); err != nil {
		return err
	}
	job := &batchv1.Job{
		ObjectMeta: metav1.ObjectMeta{GenerateName: "typed-"},
		Spec: batchv1.JobSpec{Template: corev1.PodTemplateSpec{Spec: corev1.PodSpec{
			RestartPolicy: corev1.RestartPolicyNever,
			Containers:    []corev1.Container{{Name: "c", Image: "i"}},
		}}},
	}
	made, err := client.BatchV1().Jobs(namespace).Create(ctx, job, metav1.CreateOptions{})
	if err != nil {
		return fmt.Errorf("create a job: %w", err)
	}
	made.Status.Active = 1
	if _, err := client.BatchV1().Jobs(namespace).UpdateStatus(ctx, made, metav1.UpdateOptions{}); err != nil {
		return fmt.Errorf("write a status: %w", err)
	}
	return until(ctx, "the status in the cache", func() (bool, error) {
		cached, err := jobs.Jobs(namespace).Get(made.Name)
		return err == nil && cached.Status.Active == 1, nil
	})
}

// ChangeMap makes, changes and removes a map.
func changeMap(ctx context.Context, client kubernetes.Interface, namespace string) error {
	maps := client.CoreV1().ConfigMaps(namespace)
	goes := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "goes"}}
	goes, err := maps.Create(ctx, goes, metav1.CreateOptions{})
	if err != nil {
		return fmt.Errorf("create: %w", err)
	}
	goes.Data = map[string]string{"a": "1"}
	if _, err := maps.Update(ctx, goes, metav1.UpdateOptions{}); err != nil {
		return fmt.Errorf("update: %w", err)
	}
	if _, err := maps.Update(ctx, goes, metav1.UpdateOptions{}); err == nil {
		return errors.New("an update of an old version was taken")
	}
	return maps.Delete(ctx, "goes", metav1.DeleteOptions{})
}

// OtherInformers watches without knowing types, and metadata alone.
func otherInformers(ctx context.Context, config *rest.Config, namespace string) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	of := schema.GroupVersionResource{Version: "v1", Resource: "secrets"}
	client, err := dynamic.NewForConfig(config)
	if err != nil {
		return err
	}
	partial, err := metadata.NewForConfig(config)
	if err != nil {
		return err
	}
	whole := dynamicinformer.NewFilteredDynamicSharedInformerFactory(client, 0, namespace, nil)
	metas := metadatainformer.NewFilteredSharedInformerFactory(partial, 0, namespace, nil)
	heardWhole, heardMeta := &seen{}, &seen{}
	if _, err := whole.ForResource(of).Informer().AddEventHandler(heardWhole.handler()); err != nil {
		return err
	}
	if _, err := metas.ForResource(of).Informer().AddEventHandler(heardMeta.handler()); err != nil {
		return err
	}
	whole.Start(ctx.Done())
	metas.Start(ctx.Done())
	if !cache.WaitForCacheSync(ctx.Done(), whole.ForResource(of).Informer().HasSynced, metas.ForResource(of).Informer().HasSynced) {
		return errors.New("the caches did not sync")
	}
	secret := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "v1", "kind": "Secret", "metadata": map[string]any{"name": "s"}, "stringData": map[string]any{"k": "v"},
	}}
	if _, err := client.Resource(of).Namespace(namespace).Create(ctx, secret, metav1.CreateOptions{}); err != nil {
		return fmt.Errorf("create: %w", err)
	}
	if err := client.Resource(of).Namespace(namespace).Delete(ctx, "s", metav1.DeleteOptions{}); err != nil {
		return fmt.Errorf("delete: %w", err)
	}
	return until(ctx, "events of a secret", func() (bool, error) {
		return heardWhole.all("s", 1, 0, 1) && heardMeta.all("s", 1, 0, 1), nil
	})
}
