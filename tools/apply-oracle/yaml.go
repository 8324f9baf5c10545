package main

import "sigs.k8s.io/yaml"

type yamlQuestion struct {
	// Body is what a client sends, in base64.
	Body []byte `json:"body"`
}

// yamlAnswer says what JSON a body becomes, and what a strict reader finds wrong with it.
func yamlAnswer(q yamlQuestion) answer {
	text, err := yaml.YAMLToJSON(q.Body)
	if err != nil {
		return answer{"error": err.Error()}
	}
	strict := ""
	if _, err := yaml.YAMLToJSONStrict(q.Body); err != nil {
		strict = err.Error()
	}
	return answer{"json": string(text), "strict": strict}
}
