package httpapi_test

import (
	"encoding/json"
	"fmt"
	"net/url"
	"slices"
	"testing"

	"github.com/seed18712806/lapse/sink/wire"
)

// found reads all pages of a query: of a body, or of the parameters of a list. It adds up what they count.
func (r *rig) found(body map[string]any, parameters url.Values) (ids []string, counted int64) {
	r.t.Helper()
	for continuation := ""; ; {
		var a answer
		if body != nil {
			if continuation != "" {
				body["continuation"] = continuation
			}
			text, err := json.Marshal(body)
			if err != nil {
				r.t.Fatal(err)
			}
			a = r.do("POST", "/collections/orders/query", string(text))
		} else {
			parameters.Set("continuation", continuation)
			a = r.do("GET", "/collections/orders/documents?"+parameters.Encode(), "")
		}
		var page wire.QueryReply
		if err := json.Unmarshal([]byte(a.want(r.t, 200).body), &page); err != nil {
			r.t.Fatal(err)
		}
		for _, d := range page.Documents {
			ids = append(ids, d.ID)
		}
		if page.Count != nil {
			counted += *page.Count
		}
		if continuation = page.Continuation; continuation == "" {
			return ids, counted
		}
	}
}

// TestQueries: queries have the documents that they should, by their body or by parameters, over all pages. What is
// wrong is a 400 with a reason, and one that no index serves says so to programs.
func TestQueries(t *testing.T) {
	r := start(t)
	r.do("PUT", "/collections/orders", `{"defaultTtl":-1,"indexes":["/customer","/price"]}`).want(t, 200)
	for i := range 6 {
		body := fmt.Sprintf(`{"customer":"c%d","price":%d,"ttl":%d}`, i%2, i, 1000+i)
		r.do("PUT", fmt.Sprintf("/collections/orders/documents/d%d", i), body).want(t, 201)
	}
	type where = map[string]any
	c1 := where{"/customer": "c1"}
	for _, c := range []struct {
		body map[string]any
		want []string
	}{
		{where{"where": c1, "order": "/price", "limit": 2}, []string{"d1", "d3", "d5"}},
		{where{"where": where{"/price": where{"gte": 1, "lt": 4}, "/customer": "c1"}, "order": "-/price", "limit": 1},
			[]string{"d3", "d1"}},
		{where{"where": c1, "order": "deadline", "within": "1004s"}, []string{"d1", "d3"}},
		{where{"where": where{"/customer": where{"in": []string{"c0", "c2"}}}, "order": "id"}, []string{"d0", "d2", "d4"}},
		{where{"where": where{"/customer": where{"prefix": "d"}}}, nil},
	} {
		if got, _ := r.found(c.body, nil); !slices.Equal(got, c.want) {
			t.Errorf("%v: %v, want %v", c.body, got, c.want)
		}
	}
	for _, c := range []struct {
		parameters url.Values
		want       []string
	}{
		{url.Values{"where": {"customer=c1", "price>=1", "price<5"}, "order": {"-price"}, "limit": {"1"}},
			[]string{"d3", "d1"}},
		{url.Values{"where": {"customer=c1"}, "order": {"deadline"}}, []string{"d1", "d3", "d5"}},
		{url.Values{"order": {"-/price"}, "limit": {"4"}}, []string{"d5", "d4", "d3", "d2", "d1", "d0"}},
	} {
		if got, _ := r.found(nil, c.parameters); !slices.Equal(got, c.want) {
			t.Errorf("%v: %v, want %v", c.parameters, got, c.want)
		}
	}
	if ids, n := r.found(where{"where": c1, "count": true}, nil); ids != nil || n != 3 {
		t.Errorf("counted %d, %v", n, ids)
	}
	if _, n := r.found(where{"where": where{"/ttl": 1003}, "count": true, "scan": true}, nil); n != 1 {
		t.Errorf("a scan counted %d", n)
	}

	const path = "/collections/orders/query"
	for body, reason := range map[string]string{
		`[]`: "not a JSON object", `{"where":{"/a":[1]}}`: "is an array", `{"order":"price"}`: "-/price",
		`{"limit":0}`: "from 1 to 1000", `{"prefix":"d"}`: "where, order",
		`{"where":{"/customer":"c1"},"continuation":"x"}`: "continuation",
	} {
		r.do("POST", path, body).want(t, 400, reason, `"code":"invalid"`)
	}
	r.do("POST", path, `{"where":{"/ttl":1003}}`).want(t, 400, "lapse config orders", `"code":"no-index"`)
	r.do("GET", "/collections/orders/documents?where=ttl%3D1003", "").want(t, 400, `"code":"no-index"`)
	r.do("GET", "/collections/orders/documents?where=price", "").want(t, 400, `"code":"invalid"`)
	r.do("GET", "/collections/orders/documents?where=price%3E1&where=price%3E2", "").want(t, 400, "the two ends")
	r.do("GET", "/collections/orders/documents?where=price%3E1&prefix=d", "").want(t, 400, "is not known here")
	r.do("POST", path, `{}`, "Content-Type", "text/plain").want(t, 415)
	r.do("POST", path+"?limit=1", `{}`).want(t, 400, "is not known here")
}
