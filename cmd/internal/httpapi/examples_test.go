package httpapi_test

import (
	"encoding/json"
	"os"
	"strings"
	"testing"
)

// TestExamples: every body of a request and of an answer in the description has an example, which its schema
// accepts. Each line of one, and the data of each event, is as its schema says.
//
// It fails if somebody changes a schema, or adds a route, and not the examples.
func TestExamples(t *testing.T) {
	t.Parallel()
	d, err := readOpenAPI()
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile("openapi.json")
	if err != nil {
		t.Fatal(err)
	}
	var doc map[string]any
	if err := json.Unmarshal(text, &doc); err != nil {
		t.Fatal(err)
	}
	found := 0
	walkContents(doc, nil, func(at []string, media string, content map[string]any) {
		if at[1] == "/openapi.json" || at[1] == "/asyncapi.json" {
			return
		}
		found++
		example, err := json.Marshal(content["example"])
		if err != nil || content["example"] == nil {
			t.Errorf("%s has no example of %s", strings.Join(at, " "), media)
			return
		}
		names := append(at[:len(at):len(at)], "content", media)
		if content["x-item-schema"] == nil {
			if why := d.invalid(example, append(names, "schema")...); why != "" {
				t.Errorf("the example of %s: %s\n%s", strings.Join(at, " "), why, example)
			}
			return
		}
		for line := range strings.Lines(content["example"].(string)) {
			data, ok := strings.CutPrefix(line, "data: ")
			if media == "text/event-stream" && !ok {
				continue
			}
			if why := d.invalid([]byte(data), append(names, "x-item-schema")...); why != "" {
				t.Errorf("the example of %s: %s\n%s", strings.Join(at, " "), why, data)
			}
		}
	})
	if found < 30 {
		t.Errorf("the description has %d bodies", found)
	}
}

// walkContents calls see with each body that a part of the description has: where, its media type, and what is
// said of it. Answers that refer to others have none of their own. A path with parameters is left as it is.
func walkContents(part any, at []string, see func(at []string, media string, content map[string]any)) {
	object, ok := part.(map[string]any)
	if !ok {
		return
	}
	if contents, ok := object["content"].(map[string]any); ok {
		for media, content := range contents {
			see(at, media, content.(map[string]any))
		}
		return
	}
	for name, inner := range object {
		if name != "schemas" && name != "headers" && name != "example" {
			walkContents(inner, append(at[:len(at):len(at)], name), see)
		}
	}
}

// TestExamplesWork: lapse takes the bodies that the description has as examples of requests.
func TestExamplesWork(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("openapi.json")
	if err != nil {
		t.Fatal(err)
	}
	var doc map[string]any
	if err := json.Unmarshal(text, &doc); err != nil {
		t.Fatal(err)
	}
	bodies := map[string]string{} // by method and path
	walkContents(doc["paths"], nil, func(at []string, _ string, content map[string]any) {
		if at[2] != "requestBody" {
			return
		}
		body, ok := content["example"].(string)
		if !ok {
			b, err := json.Marshal(content["example"])
			if err != nil {
				t.Fatal(err)
			}
			body = string(b)
		}
		bodies[strings.ToUpper(at[1])+" "+at[0]] = body
	})
	r := start(t)
	const collection = "/v1/collections/{collection}"
	here := strings.NewReplacer("{collection}", "orders", "{id}", "42")
	for _, c := range []struct {
		method, path, media string
		status              int
	}{
		{"PUT", collection, "application/json", 200},
		{"PATCH", collection, "application/merge-patch+json", 200},
		{"PUT", collection + "/documents/{id}", "application/json", 201},
		{"PATCH", collection + "/documents/{id}", "application/merge-patch+json", 200},
		{"POST", collection + "/documents", "application/x-ndjson", 200},
		{"POST", collection + "/query", "application/json", 200},
	} {
		body := bodies[c.method+" "+c.path]
		delete(bodies, c.method+" "+c.path)
		path := strings.TrimPrefix(here.Replace(c.path), "/v1")
		answer := r.do(c.method, path, body, "Content-Type", c.media).want(t, c.status)
		if strings.Contains(answer.body, `"error"`) {
			t.Errorf("%s %s with %s: %s", c.method, c.path, body, answer.body)
		}
	}
	if len(bodies) > 0 {
		t.Errorf("these examples were not sent: %v", bodies)
	}
}
