package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"sort"
	"strings"

	"k8s.io/kube-openapi/pkg/common"
	"k8s.io/kube-openapi/pkg/validation/spec"
	"k8s.io/kubernetes/pkg/generated/openapi"
)

// Facts are what OpenAPI says about a struct or a field beyond its Go type, as sorted key=value pairs.
type facts []string

func (f *facts) add(key string, value any) {
	var text bytes.Buffer
	encoder := json.NewEncoder(&text)
	encoder.SetEscapeHTML(false)
	check(encoder.Encode(value) == nil, "cannot write %v as JSON", value)
	*f = append(*f, key+"="+strings.TrimSuffix(text.String(), "\n"))
}

// extensions are the vendor extensions that state facts, with the pack's names for them.
var extensions = map[string]string{
	"x-kubernetes-list-type":       "list",
	"x-kubernetes-list-map-keys":   "keys",
	"x-kubernetes-map-type":        "map",
	"x-kubernetes-patch-strategy":  "patch",
	"x-kubernetes-patch-merge-key": "mergekey",
	"x-kubernetes-unions":          "unions",
}

type documents map[string]common.OpenAPIDefinition

func definitions() documents {
	return openapi.GetOpenAPIDefinitions(func(path string) spec.Ref { return spec.MustCreateRef(path) })
}

// ofStruct gives the facts of a struct, or none if no document describes it (options and internal structs).
func (d documents) ofStruct(n *node) facts {
	definition, ok := d[modelName(n.go_)]
	if !ok || n.kind != "struct" {
		return nil
	}
	var out facts
	out.extensions(definition.Schema.Extensions)
	sort.Strings(out)
	return out
}

// ofField gives the facts of one field. That the rest of what OpenAPI says follows from the Go type is checked here,
// so that documents can be made from the pack alone.
func (d documents) ofField(n *node, f field) facts {
	definition, ok := d[modelName(n.go_)]
	if !ok || f.name == "" {
		return nil
	}
	property, ok := definition.Schema.Properties[f.name]
	check(ok, "%s has no property %s", modelName(n.go_), f.name)
	d.checkShape(property, f.typ, n, f.name)

	var out facts
	if slices.Contains(definition.Schema.Required, f.name) {
		out = append(out, "required")
	}
	out.schema("", property)
	if property.Items != nil {
		out.schema("item.", *property.Items.Schema)
	}
	if property.AdditionalProperties != nil {
		out.schema("item.", *property.AdditionalProperties.Schema)
	}
	sort.Strings(out)
	return out
}

func (f *facts) schema(prefix string, s spec.Schema) {
	if s.Default != nil {
		f.add(prefix+"default", s.Default)
	}
	if s.Enum != nil {
		f.add(prefix+"enum", s.Enum)
	}
	before := len(*f)
	f.extensions(s.Extensions)
	check(prefix == "" || len(*f) == before, "extensions on items: %v", s.Extensions)
}

func (f *facts) extensions(all spec.Extensions) {
	for name, value := range all {
		key := extensions[name]
		check(key != "" || name == "x-kubernetes-v2-schema", "the pack does not know the extension %s", name)
		if key != "" {
			f.add(key, value)
		}
	}
}

// checkShape checks that type, format and reference of a schema are those of the Go type.
func (d documents) checkShape(s spec.Schema, n *node, in *node, name string) {
	if n.kind == "ptr" {
		n = n.elem
	}
	want := map[string]string{
		"string": "string", "bool": "boolean", "int32": "integer/int32", "int64": "integer/int64", "int": "integer/int32",
		"uint8": "integer/byte", "float64": "number/double", "bytes": "string/byte", "list": "array", "map": "object", "any": "object",
	}[n.kind]
	if want == "" {
		want = "->" + modelName(n.go_)
	}
	got := strings.Join(s.Type, "|")
	if s.Format != "" {
		got += "/" + s.Format
	}
	if ref := s.Ref.String(); ref != "" {
		got = "->" + ref
	}
	check(got == want, "%s.%s is %s in OpenAPI, %s by its Go type %s", in.go_, name, got, want, n.go_)
	switch n.kind {
	case "list":
		d.checkShape(*s.Items.Schema, n.elem, in, name+"[]")
	case "map":
		d.checkShape(*s.AdditionalProperties.Schema, n.elem, in, name+"{}")
	}
	known := spec.Schema{VendorExtensible: s.VendorExtensible}
	known.Description, known.Type, known.Format, known.Default, known.Enum = s.Description, s.Type, s.Format, s.Default, s.Enum
	known.Ref, known.Items, known.AdditionalProperties = s.Ref, s.Items, s.AdditionalProperties
	left, right := fmt.Sprintf("%+v", known), fmt.Sprintf("%+v", s)
	check(left == right, "%s.%s says more than the pack knows: %s", in.go_, name, right)
}
