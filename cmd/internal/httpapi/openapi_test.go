package httpapi

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"
)

// TestDescription: the description has every route and nothing else, with what every route can
// answer.
func TestDescription(t *testing.T) {
	var doc struct {
		OpenAPI string `json:"openapi"`
		Paths   map[string]map[string]json.RawMessage
	}
	if err := json.Unmarshal(description, &doc); err != nil {
		t.Fatal(err)
	}
	if !strings.HasPrefix(doc.OpenAPI, "3.1.") {
		t.Errorf("openapi %s", doc.OpenAPI)
	}
	var described, have []string
	ids := map[string]string{}
	for path, methods := range doc.Paths {
		for method, text := range methods {
			if method == "parameters" {
				continue
			}
			var operation struct {
				OperationID string
				Parameters  []struct {
					Ref string `json:"$ref"`
				}
				Responses map[string]json.RawMessage
			}
			if err := json.Unmarshal(text, &operation); err != nil {
				t.Fatalf("%s %s: %v", method, path, err)
			}
			name := strings.ToUpper(method) + " " + path
			described = append(described, name)
			if other := ids[operation.OperationID]; other != "" || operation.OperationID == "" {
				t.Errorf("%s and %s have the operationId %q", name, other, operation.OperationID)
			}
			ids[operation.OperationID] = name
			if path == "/openapi.json" || path == "/asyncapi.json" {
				continue
			}
			for _, status := range []string{"400", "401", "403", "421", "500", "503"} {
				if operation.Responses[status] == nil {
					t.Errorf("%s: %s is not described", name, status)
				}
			}
			writes := method != "get" && path != queryPath
			if writes && operation.Responses["504"] == nil {
				t.Errorf("%s: 504 is not described", name)
			}
			if elsewhere := strings.Contains(string(operation.Responses["421"]), "/Misdirected"); elsewhere != writes {
				t.Errorf("%s: that another region takes writes is described: %v", name, elsewhere)
			}
		}
	}
	for _, r := range routes {
		have = append(have, r.method+" "+r.path)
	}
	have = append(have, "GET /openapi.json", "GET /asyncapi.json")
	slices.Sort(described)
	slices.Sort(have)
	if !slices.Equal(described, have) {
		t.Errorf("described:\n%s\nroutes:\n%s", strings.Join(described, "\n"), strings.Join(have, "\n"))
	}
}
