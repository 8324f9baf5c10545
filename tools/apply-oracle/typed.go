package main

import (
	"bytes"
	"encoding/json"
	"slices"
	"strings"
	"sync"

	"k8s.io/kube-openapi/pkg/schemaconv"
	"k8s.io/kube-openapi/pkg/validation/spec"
	"k8s.io/kubernetes/pkg/generated/openapi"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"
	"sigs.k8s.io/structured-merge-diff/v6/schema"
	"sigs.k8s.io/structured-merge-diff/v6/typed"
)

type typedQuestion struct {
	// A schema of structured-merge-diff; without one, that of the built-in kinds.
	Schema json.RawMessage `json:"schema"`
	Type   string          `json:"type"`
	Left   json.RawMessage `json:"left"`
	Right  json.RawMessage `json:"right"`
	Set    json.RawMessage `json:"set"`
}

func typedAnswer(q typedQuestion) answer {
	of := parserOf(q.Schema).Type(q.Type)
	a := answer{}
	if _, err := of.FromUnstructured(applied(q.Right)); err != nil {
		a["strictError"] = err.Error()
	}
	left, err := of.FromUnstructured(stored(q.Left), typed.AllowDuplicates)
	if err != nil {
		return answer{"leftError": err.Error()}
	}
	right, err := of.FromUnstructured(applied(q.Right), typed.AllowDuplicates)
	if err != nil {
		a["rightError"] = err.Error()
		return a
	}
	items := &fieldpath.Set{}
	if err := items.FromJSON(bytes.NewReader(q.Set)); err != nil {
		a["setError"] = true
		return a
	}
	fields, err := right.ToFieldSet()
	must(err)
	a["fields"] = text(fields)
	if merged, err := left.Merge(right); err != nil {
		a["mergeError"] = err.Error()
	} else {
		a["merged"] = merged.AsValue().Unstructured()
	}
	if c, err := left.Compare(right); err != nil {
		a["compareError"] = err.Error()
	} else {
		a["added"], a["modified"], a["removed"] = text(c.Added), text(c.Modified), text(c.Removed)
	}
	a["named"] = text(items.EnsureNamedFieldsAreMembers(left.Schema(), left.TypeRef()))
	a["without"] = left.RemoveItems(items).AsValue().Unstructured()
	a["only"] = left.ExtractItems(items).AsValue().Unstructured()
	a["onlyWithKeys"] = left.ExtractItems(items, typed.WithAppendKeyFields()).AsValue().Unstructured()
	if set, err := typed.ReconcileFieldSetWithSchema(items, left); err != nil {
		a["reconcileError"] = err.Error()
	} else if set != nil {
		a["reconciled"] = text(set)
	}
	a["printed"] = items.String()
	return a
}

func text(set *fieldpath.Set) string {
	b, err := set.ToJSON()
	must(err)
	return string(b)
}

var parsers = map[string]*typed.Parser{}

func parserOf(source json.RawMessage) *typed.Parser {
	if p := parsers[string(source)]; p != nil {
		return p
	}
	p := &typed.Parser{Schema: schema.Schema{Types: builtinSchema().Types}}
	if len(source) > 0 {
		var err error
		p, err = typed.NewParser(typed.YAMLObject(source))
		must(err)
	}
	parsers[string(source)] = p
	return p
}

// builtinSchema is what kube-apiserver makes of the OpenAPI definitions of the built-in kinds.
var builtinSchema = sync.OnceValue(func() *schema.Schema {
	definitions := openapi.GetOpenAPIDefinitions(func(path string) spec.Ref {
		return spec.MustCreateRef("#/components/schemas/" + path)
	})
	models := map[string]*spec.Schema{}
	for path, definition := range definitions {
		models[path] = &definition.Schema
	}
	converted, err := schemaconv.ToSchemaFromOpenAPI(models, false)
	must(err)
	return converted
})

// convertedSchema is what kube-apiserver makes of the structural schema of a custom resource.
func convertedSchema(source json.RawMessage) *schema.Schema {
	structural := &spec.Schema{}
	must(json.Unmarshal(source, structural))
	converted, err := schemaconv.ToSchemaFromOpenAPI(map[string]*spec.Schema{"root": structural}, false)
	must(err)
	return converted
}

// asJSON is a schema in the form in which schemas are written.
func asJSON(s *schema.Schema) any {
	types := []any{}
	for _, t := range s.Types {
		of := atom(t.Atom)
		of["name"] = t.Name
		types = append(types, of)
	}
	return map[string]any{"types": types}
}

func reference(r schema.TypeRef) map[string]any {
	if r.NamedType == nil {
		return atom(r.Inlined)
	}
	of := map[string]any{"namedType": *r.NamedType}
	if r.ElementRelationship != nil {
		of["elementRelationship"] = *r.ElementRelationship
	}
	return of
}

func atom(a schema.Atom) map[string]any {
	of := map[string]any{}
	if a.Scalar != nil {
		of["scalar"] = *a.Scalar
	}
	if a.List != nil {
		list := map[string]any{
			"elementType":         reference(a.List.ElementType),
			"elementRelationship": a.List.ElementRelationship,
		}
		if len(a.List.Keys) > 0 {
			list["keys"] = a.List.Keys
		}
		of["list"] = list
	}
	if a.Map != nil {
		m := map[string]any{"elementRelationship": a.Map.ElementRelationship}
		fields := []any{}
		for _, f := range a.Map.Fields {
			field := map[string]any{"name": f.Name, "type": reference(f.Type)}
			if f.Default != nil {
				field["default"] = f.Default
			}
			fields = append(fields, field)
		}
		slices.SortFunc(fields, func(a, b any) int {
			return strings.Compare(a.(map[string]any)["name"].(string), b.(map[string]any)["name"].(string))
		})
		if len(fields) > 0 {
			m["fields"] = fields
		}
		if rest := a.Map.ElementType; rest.NamedType != nil || rest.Inlined != (schema.Atom{}) {
			m["elementType"] = reference(rest)
		}
		of["map"] = m
	}
	return of
}
