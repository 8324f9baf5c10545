package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"slices"

	jsonpatch "gopkg.in/evanphx/json-patch.v4"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/mergepatch"
	"k8s.io/apimachinery/pkg/util/strategicpatch"
	"k8s.io/client-go/kubernetes/scheme"
)

type patchQuestion struct {
	Document json.RawMessage `json:"document"`
	// The patch as text, which need not be JSON.
	Patch string `json:"patch"`
	// The kind that a strategic merge patch is for.
	Group      string `json:"group"`
	APIVersion string `json:"apiVersion"`
	PatchKind  string `json:"patchKind"`
}

func jsonPatchAnswer(q patchQuestion) answer {
	patch, err := jsonpatch.DecodePatch([]byte(q.Patch))
	if err != nil {
		return answer{"error": err.Error(), "code": 400}
	}
	patched, err := patch.Apply(q.Document)
	if err != nil {
		return answer{"error": err.Error(), "code": 422}
	}
	return answer{"object": json.RawMessage(patched)}
}

func mergePatchAnswer(q patchQuestion) answer {
	patched, err := jsonpatch.MergePatch(q.Document, []byte(q.Patch))
	if err != nil {
		code := 500
		if err == jsonpatch.ErrBadJSONPatch {
			code = 400
		}
		return answer{"error": err.Error(), "code": code}
	}
	return answer{"object": json.RawMessage(patched)}
}

// strategicAnswer collects what may come out: a patch with two faults fails by the one that Go's maps bring up first.
func strategicAnswer(q patchQuestion) answer {
	answers := map[string]answer{}
	for range 16 {
		a := strategicOnce(q)
		text, err := json.Marshal(a)
		must(err)
		answers[string(text)] = a
	}
	return answer{"answers": slices.Collect(maps.Values(answers))}
}

func strategicOnce(q patchQuestion) (a answer) {
	defer func() {
		if r := recover(); r != nil {
			a = answer{"panic": fmt.Sprint(r)}
		}
	}()
	of, err := scheme.Scheme.New(schema.GroupVersionKind{Group: q.Group, Version: q.APIVersion, Kind: q.PatchKind})
	must(err)
	document := stored(q.Document).(map[string]any)
	patch := stored(json.RawMessage(q.Patch)).(map[string]any)
	patched, err := strategicpatch.StrategicMergeMapPatch(document, patch, of)
	if err != nil {
		return answer{"error": err.Error(), "code": codeOf(err)}
	}
	return answer{"object": patched}
}

// codeOf is how the API server answers an error of a strategic merge patch.
func codeOf(err error) int {
	switch err {
	case mergepatch.ErrBadJSONDoc, mergepatch.ErrBadPatchFormatForPrimitiveList,
		mergepatch.ErrBadPatchFormatForRetainKeys, mergepatch.ErrBadPatchFormatForSetElementOrderList,
		mergepatch.ErrUnsupportedStrategicMergePatchFormat:
		return 400
	case mergepatch.ErrNoListOfLists, mergepatch.ErrPatchContentNotMatchRetainKeys:
		return 422
	}
	return 500
}

func reader(raw json.RawMessage) io.Reader { return bytes.NewReader(raw) }
