// Command pack writes the schema pack: what Kubernetes' Go types, struct tags and OpenAPI definitions say about every
// type that an API server reads and writes, without their prose.
//
// The output is one gzip file of lines. Columns are separated by tabs, types refer to each other by their line's
// place among the type lines, optional facts stand at the end as key=JSON:
//
//	ferry-schema <format> <Kubernetes version>
//	<shape> <Go name> <OpenAPI name> <element type> [facts]    a type; if it is a struct, its fields follow
//	. <Go name> <JSON name> <type> <e|z|-> <proto> [facts]     e: omitempty, z: omitzero; no JSON name: inlined
//	internal <wire type> <internal type> <source>,<source>…    one source for each field of the internal struct
//	kind <group> <version> <kind> <type> [facts]
//
// A kind's facts are left for what only a running server knows (plural, short names, verbs).
package main

import (
	"bytes"
	"compress/gzip"
	"flag"
	"fmt"
	"os"
	"reflect"
	"runtime/debug"
	"sort"
	"strconv"
	"strings"

	"ferry/tools/schema/scheme"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

func main() {
	output := flag.String("o", "", "file to write; its lines go to stdout without it")
	flag.Parse()
	text := write()
	if *output == "" {
		_, err := os.Stdout.Write(text)
		check(err == nil, "%v", err)
		return
	}
	var packed bytes.Buffer
	zip, err := gzip.NewWriterLevel(&packed, gzip.BestCompression)
	check(err == nil, "%v", err)
	_, err = zip.Write(text)
	check(err == nil, "%v", err)
	check(zip.Close() == nil, "cannot finish the gzip stream")
	err = os.WriteFile(*output, packed.Bytes(), 0o644)
	check(err == nil, "%v", err)
}

func write() []byte {
	kinds := servedKinds()
	known := scheme.All.AllKnownTypes()
	g := &graph{nodes: map[reflect.Type]*node{}}
	for _, gvk := range kinds {
		g.add(known[gvk])
	}
	internal := counterparts(g, kinds)

	var out bytes.Buffer
	line := func(columns ...any) {
		texts := make([]string, len(columns))
		for i, column := range columns {
			texts[i] = fmt.Sprint(column)
			check(!strings.ContainsAny(texts[i], "\t\n"), "%q does not fit into a line", texts[i])
		}
		fmt.Fprintln(&out, strings.Join(texts, "\t"))
	}
	line("ferry-schema", 1, kubernetesVersion())
	documents := definitions()
	for _, n := range g.order {
		n.write(line, documents)
	}
	for _, c := range internal {
		line("internal", c.wire.id, c.internal.id, strings.Join(c.sources, ","))
	}
	for _, gvk := range kinds {
		line("kind", gvk.Group, gvk.Version, gvk.Kind, g.add(known[gvk]).id)
	}
	return out.Bytes()
}

func (n *node) write(line func(...any), documents documents) {
	model, elem := "", ""
	if n.isModel() {
		model = modelName(n.go_)
	}
	if n.elem != nil {
		elem = strconv.Itoa(n.elem.id)
	}
	columns := []any{n.kind, n.go_, model, elem}
	for _, fact := range documents.ofStruct(n) {
		columns = append(columns, fact)
	}
	if n.kind == "list" && isMessage(n.go_) {
		columns = append(columns, "message")
	}
	line(columns...)
	for _, f := range n.fields {
		omit := "-"
		switch {
		case f.zero:
			omit = "z"
		case f.empty:
			omit = "e"
		}
		columns := []any{".", f.goName, f.name, f.typ.id, omit, f.proto}
		for _, fact := range documents.ofField(n, f) {
			columns = append(columns, fact)
		}
		line(columns...)
	}
}

// isMessage tells lists that are wrapped into a message of their own in protobuf.
func isMessage(t reflect.Type) bool {
	_, ok := reflect.New(t).Interface().(interface{ Marshal() ([]byte, error) })
	return ok
}

// kubernetesVersion is the version of the module that this program was built with.
func kubernetesVersion() string {
	info, ok := debug.ReadBuildInfo()
	check(ok, "no build information")
	for _, module := range info.Deps {
		if module.Path == "k8s.io/kubernetes" {
			return module.Version
		}
	}
	panic("built without k8s.io/kubernetes")
}

func servedKinds() []schema.GroupVersionKind {
	var kinds []schema.GroupVersionKind
	for gvk := range scheme.All.AllKnownTypes() {
		if gvk.Version != runtime.APIVersionInternal {
			kinds = append(kinds, gvk)
		}
	}
	sort.Slice(kinds, func(i, j int) bool { return kinds[i].String() < kinds[j].String() })
	return kinds
}
