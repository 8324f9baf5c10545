package main

import (
	"encoding/json"
	"fmt"
	"maps"
	"time"

	"k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/managedfields"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"
	"sigs.k8s.io/structured-merge-diff/v6/typed"
)

type fieldManagerQuestion struct {
	Live        json.RawMessage `json:"live"`
	Object      json.RawMessage `json:"object"`
	Manager     string          `json:"manager"`
	Force       bool            `json:"force"`
	Version     string          `json:"version"`
	Kind        string          `json:"kind"`
	Subresource string          `json:"subresource"`
	// What the present is called in the answer.
	Now string `json:"now"`
	// The name of the kind's type in each version.
	Types map[string]string `json:"types"`
	// What each version calls one field of the spec.
	Names map[string]string `json:"names"`
	// Fields that the endpoint resets, in each version.
	Reset map[string]json.RawMessage `json:"reset"`
	// The zero value of the kind.
	Empty json.RawMessage `json:"empty"`

	FieldSchema json.RawMessage `json:"fieldSchema"`
}

func applyAnswer(q fieldManagerQuestion) answer {
	f := managerOf(q)
	live := &unstructured.Unstructured{Object: stored(q.Live).(map[string]any)}
	config := &unstructured.Unstructured{Object: applied(q.Object).(map[string]any)}
	object, err := f.Apply(live, config, q.Manager, q.Force)
	if err != nil {
		a := answer{"error": err.Error()}
		if status, ok := err.(errors.APIStatus); ok {
			a["code"] = status.Status().Code
			if details := status.Status().Details; details != nil {
				a["causes"] = details.Causes
			}
		}
		return a
	}
	return answer{"object": atNow(object, q.Now)}
}

func updateAnswer(q fieldManagerQuestion) answer {
	f := managerOf(q)
	live := &unstructured.Unstructured{Object: stored(q.Live).(map[string]any)}
	object := &unstructured.Unstructured{Object: stored(q.Object).(map[string]any)}
	updated, err := f.Update(live, object, q.Manager)
	if err != nil {
		return answer{"error": err.Error()}
	}
	return answer{"object": atNow(updated, q.Now)}
}

func managerOf(q fieldManagerQuestion) *managedfields.FieldManager {
	kind := schema.FromAPIVersionAndKind(q.Version, q.Kind)
	types := typeConverter{typedParser: parserOf(q.FieldSchema), types: q.Types}
	reset := map[fieldpath.APIVersion]fieldpath.Filter{}
	for version, fields := range q.Reset {
		set := &fieldpath.Set{}
		must(set.FromJSON(reader(fields)))
		reset[fieldpath.APIVersion(version)] = fieldpath.NewExcludeSetFilter(set)
	}
	convert := objectConverter{types: q.Types, names: q.Names}
	f, err := managedfields.NewDefaultFieldManager(
		types, convert, noDefaults{}, creater{q.Empty}, kind, kind.GroupVersion(), q.Subresource, reset)
	must(err)
	return f
}

// atNow calls every time that is near the present by one name.
func atNow(object runtime.Object, now string) any {
	u := object.(*unstructured.Unstructured)
	if entries, ok, _ := unstructured.NestedSlice(u.Object, "metadata", "managedFields"); ok {
		for _, entry := range entries {
			entry := entry.(map[string]any)
			if text, ok := entry["time"].(string); ok {
				t, err := time.Parse(time.RFC3339, text)
				must(err)
				if time.Since(t).Abs() < time.Hour {
					entry["time"] = now
				}
			}
		}
		must(unstructured.SetNestedSlice(u.Object, entries, "metadata", "managedFields"))
	}
	return u.Object
}

type typeConverter struct {
	typedParser *typed.Parser
	types       map[string]string
}

func (c typeConverter) ObjectToTyped(obj runtime.Object, opts ...typed.ValidationOptions) (*typed.TypedValue, error) {
	gvk := obj.GetObjectKind().GroupVersionKind()
	name, ok := c.types[gvk.GroupVersion().String()]
	if !ok {
		return nil, fmt.Errorf("no corresponding type for %v", gvk)
	}
	return c.typedParser.Type(name).FromUnstructured(obj.(*unstructured.Unstructured).Object, opts...)
}

func (c typeConverter) TypedToObject(v *typed.TypedValue) (runtime.Object, error) {
	object, ok := v.AsValue().Unstructured().(map[string]any)
	if !ok {
		return nil, fmt.Errorf("failed to convert value to unstructured for type %T", v.AsValue().Unstructured())
	}
	return &unstructured.Unstructured{Object: object}, nil
}

// objectConverter renames one field of the spec from version to version.
type objectConverter struct {
	types map[string]string
	names map[string]string
}

func (c objectConverter) ConvertToVersion(in runtime.Object, to runtime.GroupVersioner) (runtime.Object, error) {
	u := in.(*unstructured.Unstructured)
	gvk := u.GroupVersionKind()
	target := to.(schema.GroupVersion)
	if gvk.GroupVersion() == target {
		return in, nil
	}
	if _, ok := c.types[target.String()]; !ok {
		return nil, runtime.NewNotRegisteredErrForKind("test", target.WithKind(gvk.Kind))
	}
	object := maps.Clone(u.Object)
	object["apiVersion"] = target.String()
	from, name := c.names[gvk.GroupVersion().String()], c.names[target.String()]
	if spec, ok := object["spec"].(map[string]any); ok && from != name {
		spec = maps.Clone(spec)
		if value, ok := spec[from]; ok {
			delete(spec, from)
			spec[name] = value
		}
		object["spec"] = spec
	}
	return &unstructured.Unstructured{Object: object}, nil
}

func (objectConverter) Convert(_, _, _ any) error { panic("not asked for") }

func (objectConverter) ConvertFieldLabel(schema.GroupVersionKind, string, string) (string, string, error) {
	panic("not asked for")
}

type noDefaults struct{}

func (noDefaults) Default(runtime.Object) {}

type creater struct{ empty json.RawMessage }

func (c creater) New(schema.GroupVersionKind) (runtime.Object, error) {
	return &unstructured.Unstructured{Object: stored(c.empty).(map[string]any)}, nil
}
