package main

import (
	"bytes"
	"encoding/json"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"

	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"
	"sigs.k8s.io/structured-merge-diff/v6/typed"
	"sigs.k8s.io/yaml"
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
	schema, ref := left.Schema(), left.TypeRef()
	a["named"] = text(items.EnsureNamedFieldsAreMembers(schema, ref))
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

func parserOf(schema json.RawMessage) *typed.Parser {
	if p := parsers[string(schema)]; p != nil {
		return p
	}
	source := typed.YAMLObject(schema)
	if len(schema) == 0 {
		source = typed.YAMLObject(builtinYAML())
	}
	p, err := typed.NewParser(source)
	must(err)
	parsers[string(schema)] = p
	return p
}

// builtinSchema is the schema that client-go brings along, as JSON.
func builtinSchema() any {
	var v any
	must(yaml.Unmarshal([]byte(builtinYAML()), &v))
	return v
}

// builtinYAML finds the schema of the built-in kinds in client-go, which keeps it in a package that cannot be imported.
var builtinYAML = sync.OnceValue(func() string {
	list := exec.Command("go", "list", "-m", "-f", "{{.Dir}}", "k8s.io/client-go")
	list.Dir = os.Getenv("APPLY_ORACLE_SOURCE")
	dir, err := list.Output()
	must(err)
	path := filepath.Join(strings.TrimSpace(string(dir)), "applyconfigurations/internal/internal.go")
	file, err := parser.ParseFile(token.NewFileSet(), path, nil, 0)
	must(err)
	found := ""
	ast.Inspect(file, func(n ast.Node) bool {
		if lit, ok := n.(*ast.BasicLit); ok && lit.Kind == token.STRING && strings.Contains(lit.Value, "types:") {
			text, err := strconv.Unquote(lit.Value)
			must(err)
			found = text
		}
		return true
	})
	return found
})
