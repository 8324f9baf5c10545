package main

import (
	"reflect"
	"regexp"
	"strings"

	"ferry/tools/schema/scheme"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// A counterpart says how the unversioned struct, which Kubernetes prints in error messages, is filled from a wire
// struct: one source for each of its fields.
type counterpart struct {
	wire, internal *node
	sources        []string
}

// What a source can be besides the JSON name of a wire field.
const (
	sameObject = "^" // the wire struct inlines what this field holds
	nothing    = "-" // the field is not on the wire
)

// generallyAvailable versions are the ones with counterparts: the others are off by default, and some of them need
// conversions that are more than renames.
var generallyAvailable = regexp.MustCompile(`^v[0-9]+$`)

// withoutCounterpart are kinds whose conversion is more than a rename: v1 autoscalers keep metrics in annotations,
// lists of anything and watch events hold objects, and schemas of custom resources change shape.
func withoutCounterpart(gvk schema.GroupVersionKind) bool {
	return strings.HasPrefix(gvk.Kind, "HorizontalPodAutoscaler") && gvk.Version == "v1" ||
		gvk.Kind == "List" || gvk.Kind == "WatchEvent" || gvk.Group == "apiextensions.k8s.io"
}

// renamed lists the fields of unversioned structs that have no wire field of the same Go name.
var renamed = map[string]map[string]string{
	// The reader of the pack moves these five from the pod's spec into the object that becomes a PodSecurityContext.
	"core.PodSecurityContext": {
		"HostNetwork":           "hostNetwork",
		"HostPID":               "hostPID",
		"HostIPC":               "hostIPC",
		"ShareProcessNamespace": "shareProcessNamespace",
		"HostUsers":             "hostUsers",
	},
	// events.k8s.io has other names for what core has.
	"core.Event": {
		"InvolvedObject": "regarding",
		"Message":        "note",
		"Source":         "deprecatedSource",
		"FirstTimestamp": "deprecatedFirstTimestamp",
		"LastTimestamp":  "deprecatedLastTimestamp",
		"Count":          "deprecatedCount",
	},
	// Both live in annotations of the object around the spec, written by clients of extensions/v1beta1.
	"apps.DaemonSetSpec":  {"TemplateGeneration": nothing},
	"apps.DeploymentSpec": {"RollbackTo": nothing},
}

type pairing struct {
	g       *graph
	by      map[reflect.Type]reflect.Type
	visited map[[2]reflect.Type]bool
	found   []counterpart
}

// counterparts pairs every struct that a generally available kind reaches with its unversioned form.
func counterparts(g *graph, kinds []schema.GroupVersionKind) []counterpart {
	p := &pairing{g: g, by: map[reflect.Type]reflect.Type{}, visited: map[[2]reflect.Type]bool{}}
	known := scheme.All.AllKnownTypes()
	for _, gvk := range kinds {
		internal := known[schema.GroupVersionKind{Group: gvk.Group, Version: runtime.APIVersionInternal, Kind: gvk.Kind}]
		if internal == nil || !generallyAvailable.MatchString(gvk.Version) || withoutCounterpart(gvk) {
			continue
		}
		p.visit(known[gvk], internal)
	}
	return p.found
}

func (p *pairing) visit(wire, internal reflect.Type) {
	both := [2]reflect.Type{wire, internal}
	if wire == internal || p.visited[both] {
		return
	}
	p.visited[both] = true
	switch kind := kindOf(wire); {
	case kind == "ptr" && kindOf(internal) != "ptr": // nil becomes the zero value
		p.visit(wire.Elem(), internal)
	case kind != "ptr" && kindOf(internal) == "ptr": // the zero value gets an address
		p.visit(wire, internal.Elem())
	case kind == "raw" && kindOf(internal) == "any": // prints as it came
	case kind != kindOf(internal):
		panic("cannot pair " + wire.String() + " with " + internal.String())
	case kind == "ptr", kind == "list", kind == "map":
		p.visit(wire.Elem(), internal.Elem())
	case kind == "struct":
		p.pair(wire, internal)
	}
}

func (p *pairing) pair(wire, internal reflect.Type) {
	other, paired := p.by[wire]
	check(!paired, "%s is paired with both %s and %s", wire, other, internal)
	p.by[wire] = internal
	c := counterpart{wire: p.g.add(wire), internal: p.g.add(internal)}
	at := len(p.found)
	p.found = append(p.found, c)
	for _, f := range c.internal.fields {
		source := nothing
		w := c.wire.field(f.goName)
		switch {
		case f.goName == "TypeMeta": // conversion leaves it empty
		case w != nil:
			p.visit(w.typ.go_, f.typ.go_)
			source = w.name
			if w.name == "" {
				source = sameObject
			}
		default:
			source = renamed[internal.String()][f.goName]
			check(source != "", "nothing of %s becomes %s.%s", wire, internal, f.goName)
			if w := c.wire.named(source); w != nil {
				p.visit(w.typ.go_, f.typ.go_)
			}
		}
		c.sources = append(c.sources, source)
	}
	p.found[at] = c
}

func (n *node) field(goName string) *field {
	for i := range n.fields {
		if n.fields[i].goName == goName {
			return &n.fields[i]
		}
	}
	return nil
}

func (n *node) named(name string) *field {
	for i := range n.fields {
		if n.fields[i].name == name {
			return &n.fields[i]
		}
	}
	return nil
}
