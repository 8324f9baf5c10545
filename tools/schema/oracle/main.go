// Command oracle reads documents as kube-apiserver does and says what became of them.
//
// It takes one JSON object a line, {"group", "version", "kind", "body"} with the document in base64, and answers each
// with one line: the error and strict errors of reading it, or the JSON, the print of the internal object and the
// protobuf that Kubernetes makes of it. A message in protobuf ("protobuf": true) is only read and written back as JSON.
package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"reflect"

	"ferry/tools/schema/scheme"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer/protobuf"
	kjson "sigs.k8s.io/json"
)

type question struct {
	Group   string `json:"group"`
	Version string `json:"version"`
	Kind    string `json:"kind"`
	Body    []byte `json:"body"`

	Protobuf bool `json:"protobuf"`
}

type answer struct {
	Error  string   `json:"error,omitempty"`
	Strict []string `json:"strict,omitempty"`
	// The document as it is written back.
	JSON string `json:"json,omitempty"`
	// What encoding/json prints for the internal object, and the document after it was one; empty if there is none.
	Internal string `json:"internal,omitempty"`
	Returned string `json:"returned,omitempty"`
	// The document in protobuf, envelope included, and what is written back after reading that.
	Protobuf     []byte `json:"protobuf,omitempty"`
	FromProtobuf string `json:"fromProtobuf,omitempty"`
}

func main() {
	lines := bufio.NewScanner(os.Stdin)
	lines.Buffer(nil, 64<<20)
	out := bufio.NewWriter(os.Stdout)
	defer out.Flush()
	for lines.Scan() {
		var q question
		must(json.Unmarshal(lines.Bytes(), &q))
		text, err := json.Marshal(q.answer())
		must(err)
		fmt.Fprintln(out, string(text))
	}
	must(lines.Err())
}

func (q question) answer() answer {
	gvk := schema.GroupVersionKind{Group: q.Group, Version: q.Version, Kind: q.Kind}
	object, err := scheme.All.New(gvk)
	must(err)
	if q.Protobuf {
		return fromProtobuf(object, q.Body)
	}
	strict, err := kjson.UnmarshalStrict(q.Body, object)
	if err != nil {
		return answer{Error: err.Error()}
	}
	var a answer
	for _, s := range strict {
		a.Strict = append(a.Strict, s.Error())
	}
	a.JSON = marshal(object)
	if _, message := object.(interface{ Unmarshal([]byte) error }); message {
		a.Protobuf, a.FromProtobuf = throughProtobuf(gvk, object)
	}
	a.Internal, a.Returned = throughInternal(gvk, object)
	return a
}

func throughInternal(gvk schema.GroupVersionKind, object runtime.Object) (print, returned string) {
	unversioned := schema.GroupVersion{Group: gvk.Group, Version: runtime.APIVersionInternal}
	if !scheme.All.Recognizes(unversioned.WithKind(gvk.Kind)) {
		return "", ""
	}
	internal, err := scheme.All.ConvertToVersion(object, unversioned)
	if err != nil {
		return "", ""
	}
	print = marshal(internal)
	back, err := scheme.All.ConvertToVersion(internal, gvk.GroupVersion())
	must(err)
	return print, marshal(back)
}

func fromProtobuf(object runtime.Object, message []byte) answer {
	if err := object.(interface{ Unmarshal([]byte) error }).Unmarshal(message); err != nil {
		return answer{Error: err.Error()}
	}
	text, err := json.Marshal(object)
	if err != nil {
		return answer{Error: "cannot be written: " + err.Error()}
	}
	return answer{JSON: string(text)}
}

func throughProtobuf(gvk schema.GroupVersionKind, object runtime.Object) ([]byte, string) {
	// The envelope repeats the type, which the message leaves out.
	object.GetObjectKind().SetGroupVersionKind(gvk)
	serializer := protobuf.NewSerializer(scheme.All, scheme.All)
	var message bytes.Buffer
	must(serializer.Encode(object, &message))
	read := reflect.New(reflect.TypeOf(object).Elem()).Interface().(runtime.Object)
	_, _, err := serializer.Decode(message.Bytes(), &gvk, read)
	must(err)
	read.GetObjectKind().SetGroupVersionKind(gvk)
	return message.Bytes(), marshal(read)
}

func marshal(object any) string {
	text, err := json.Marshal(object)
	must(err)
	return string(text)
}

func must(err error) {
	if err != nil {
		panic(err)
	}
}
