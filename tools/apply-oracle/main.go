// Command apply-oracle applies, merges, patches and reads YAML as kube-apiserver does, and says what came out.
//
// It takes one JSON object a line and answers each with one line. What a line asks is in its "op"; everything it may
// need is in the line, so that questions can be asked in any order.
package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"

	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	kjson "sigs.k8s.io/json"
)

type question struct {
	Op string `json:"op"`
	typedQuestion
	fieldManagerQuestion
	patchQuestion
	yamlQuestion
}

type answer map[string]any

func main() {
	utilruntime.ErrorHandlers = nil // what it would log, the answers say
	lines := bufio.NewScanner(os.Stdin)
	lines.Buffer(nil, 64<<20)
	out := bufio.NewWriter(os.Stdout)
	defer out.Flush()
	for lines.Scan() {
		var q question
		must(json.Unmarshal(lines.Bytes(), &q))
		line, err := json.Marshal(respond(q))
		must(err)
		out.Write(append(line, '\n'))
	}
	must(lines.Err())
}

// respond turns a panic, which kube-apiserver would answer with a 500, into an answer.
func respond(q question) (a answer) {
	defer func() {
		if r := recover(); r != nil {
			a = answer{"panic": fmt.Sprint(r)}
		}
	}()
	switch q.Op {
	case "schema":
		return answer{"schema": asJSON(builtinSchema())}
	case "convert":
		return answer{"schema": asJSON(convertedSchema(q.Schema))}
	case "typed":
		return typedAnswer(q.typedQuestion)
	case "apply":
		return applyAnswer(q.fieldManagerQuestion)
	case "update":
		return updateAnswer(q.fieldManagerQuestion)
	case "json-patch":
		return jsonPatchAnswer(q.patchQuestion)
	case "merge-patch":
		return mergePatchAnswer(q.patchQuestion)
	case "strategic":
		return strategicAnswer(q.patchQuestion)
	case "yaml":
		return yamlAnswer(q.yamlQuestion)
	}
	return answer{"error": "unknown op " + q.Op}
}

// stored reads a value as kube-apiserver reads objects: whole numbers are integers.
func stored(raw json.RawMessage) any {
	var v any
	must(kjson.UnmarshalCaseSensitivePreserveInts(raw, &v))
	return v
}

// applied reads a value as kube-apiserver reads applied configurations: every number is a float.
func applied(raw json.RawMessage) any {
	var v any
	must(json.Unmarshal(raw, &v))
	return v
}

func must(err error) {
	if err != nil {
		panic(err)
	}
}
