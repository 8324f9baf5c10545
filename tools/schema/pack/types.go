package main

import (
	"encoding/json"
	"fmt"
	"reflect"
	"strconv"
	"strings"
)

// A graph numbers Go types in the order in which they are first met. The order is a function of the pinned modules
// alone, because kinds are visited sorted and fields in Go order.
type graph struct {
	order []*node
	nodes map[reflect.Type]*node
}

// A node is one Go type as encoding/json and gogo-protobuf see it.
type node struct {
	id     int
	go_    reflect.Type
	kind   string // how it is written on the wire; see kindOf
	elem   *node  // of list, map and ptr
	fields []field
}

// A field is one Go struct field that appears in JSON, embedded structs included.
type field struct {
	goName string
	name   string // in JSON; empty if inlined
	typ    *node
	empty  bool   // omitempty
	zero   bool   // omitzero
	proto  string // field number and wire type letter
}

// special names the types that write and read their JSON themselves.
var special = map[string]string{
	"k8s.io/apimachinery/pkg/apis/meta/v1.Time":       "time",
	"k8s.io/apimachinery/pkg/apis/meta/v1.MicroTime":  "microtime",
	"k8s.io/apimachinery/pkg/apis/meta/v1.Duration":   "duration",
	"k8s.io/apimachinery/pkg/apis/meta/v1.FieldsV1":   "raw",
	"k8s.io/apimachinery/pkg/runtime.RawExtension":    "raw",
	"k8s.io/apimachinery/pkg/api/resource.Quantity":   "quantity",
	"k8s.io/apimachinery/pkg/util/intstr.IntOrString": "intorstring",
}

// specialByName are the ones that exist in several API versions.
var specialByName = map[string]string{
	"JSON":                         "raw",
	"JSONSchemaPropsOrBool":        "schema-or-bool",
	"JSONSchemaPropsOrArray":       "schema-or-array",
	"JSONSchemaPropsOrStringArray": "schema-or-strings",
}

var (
	marshaler   = reflect.TypeFor[json.Marshaler]()
	unmarshaler = reflect.TypeFor[json.Unmarshaler]()
)

func (g *graph) add(t reflect.Type) *node {
	if n := g.nodes[t]; n != nil {
		return n
	}
	n := &node{id: len(g.order), go_: t, kind: kindOf(t)}
	g.nodes[t] = n
	g.order = append(g.order, n)
	switch {
	case strings.HasPrefix(n.kind, "schema-or-"):
		// Its only interesting part: the schema it may hold.
		f, ok := t.FieldByName("Schema")
		check(ok, "%s has no field Schema", t)
		n.elem = g.add(f.Type.Elem())
	case n.kind == "list", n.kind == "map", n.kind == "ptr":
		check(n.kind != "map" || t.Key().Kind() == reflect.String, "%s has keys that are not strings", t)
		n.elem = g.add(t.Elem())
	case n.kind == "struct":
		g.addFields(n)
	}
	return n
}

func kindOf(t reflect.Type) string {
	if kind, ok := special[t.PkgPath()+"."+t.Name()]; ok {
		return kind
	}
	if strings.HasPrefix(t.PkgPath(), "k8s.io/apiextensions-apiserver/") && t.Kind() == reflect.Struct {
		if kind, ok := specialByName[t.Name()]; ok && reflect.PointerTo(t).Implements(unmarshaler) {
			return kind
		}
	}
	if t.Kind() != reflect.Interface && t.Kind() != reflect.Pointer {
		own := reflect.PointerTo(t).Implements(marshaler) || reflect.PointerTo(t).Implements(unmarshaler)
		check(!own, "%s has its own JSON form, which the pack does not know", t)
	}
	switch t.Kind() {
	case reflect.Slice:
		if t.Elem().Kind() == reflect.Uint8 {
			return "bytes"
		}
		return "list"
	case reflect.Map:
		return "map"
	case reflect.Pointer:
		return "ptr"
	case reflect.Interface:
		return "any"
	case reflect.Struct, reflect.String, reflect.Bool, reflect.Int, reflect.Int32, reflect.Int64, reflect.Uint8,
		reflect.Uint16, reflect.Uint32, reflect.Uint64, reflect.Float32, reflect.Float64:
		return t.Kind().String()
	}
	panic(fmt.Sprintf("%s is of kind %s, which the pack does not know", t, t.Kind()))
}

func (g *graph) addFields(n *node) {
	for i := range n.go_.NumField() {
		f := n.go_.Field(i)
		name, options, _ := strings.Cut(f.Tag.Get("json"), ",")
		if name == "-" || !f.IsExported() {
			continue
		}
		inline := f.Anonymous && name == ""
		if !inline && name == "" {
			name = f.Name
		}
		for _, option := range strings.Split(options, ",") {
			switch option {
			case "", "inline", "omitempty", "omitzero":
			default:
				panic(fmt.Sprintf("%s.%s has the JSON option %q, which the pack does not know", n.go_, f.Name, option))
			}
		}
		check(!inline || f.Type.Kind() == reflect.Struct, "%s inlines the pointer %s", n.go_, f.Name)
		n.fields = append(n.fields, field{
			goName: f.Name,
			name:   name,
			typ:    g.add(f.Type),
			empty:  has(options, "omitempty"),
			zero:   has(options, "omitzero"),
			proto:  protoOf(f),
		})
	}
	// encoding/json drops names that are ambiguous between embedded structs; the readers of the pack need not know.
	names := map[string]bool{}
	for _, name := range n.names() {
		check(!names[name], "%s has two fields named %q", n.go_, name)
		names[name] = true
	}
}

func (n *node) names() []string {
	var out []string
	for _, f := range n.fields {
		if f.name == "" {
			out = append(out, f.typ.names()...)
		} else {
			out = append(out, f.name)
		}
	}
	return out
}

func protoOf(f reflect.StructField) string {
	tag := f.Tag.Get("protobuf")
	if tag == "" {
		return ""
	}
	parts := strings.Split(tag, ",")
	check(len(parts) > 2, "protobuf tag %q", tag)
	number, err := strconv.Atoi(parts[1])
	check(err == nil, "protobuf tag %q", tag)
	letter := map[string]string{"bytes": "b", "varint": "v", "fixed64": "f", "fixed32": "g"}[parts[0]]
	check(letter != "", "protobuf tag %q", tag)
	return fmt.Sprintf("%d%s", number, letter)
}

// isModel tells the types that have a name of their own in OpenAPI documents.
func (n *node) isModel() bool {
	return n.go_.Kind() == reflect.Struct
}

// modelName is the name of a type in OpenAPI documents.
func modelName(t reflect.Type) string {
	if named, ok := reflect.New(t).Interface().(interface{ OpenAPIModelName() string }); ok {
		// The method may belong to an embedded struct.
		if name := named.OpenAPIModelName(); strings.HasSuffix(name, "."+t.Name()) {
			return name
		}
	}
	segments := strings.Split(t.PkgPath(), "/")
	host := strings.Split(segments[0], ".")
	for i, j := 0, len(host)-1; i < j; i, j = i+1, j-1 {
		host[i], host[j] = host[j], host[i]
	}
	return strings.Join(append(append(host, segments[1:]...), t.Name()), ".")
}

func has(options, option string) bool {
	for _, o := range strings.Split(options, ",") {
		if o == option {
			return true
		}
	}
	return false
}

func check(ok bool, format string, args ...any) {
	if !ok {
		panic(fmt.Sprintf(format, args...))
	}
}
