package httpapi_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/seed18712806/lapse/cmd/internal/serve"
	"github.com/seed18712806/lapse/integration/harness/natstest"
)

// someReply is the answer to ?ids=.
type someReply struct {
	Documents []struct {
		ID, Etag string
		Document json.RawMessage
	}
	Missing, Unread []string
}

// some reads documents by their ids.
func (r *rig) some(ids string) (reply someReply, have []string) {
	r.t.Helper()
	a := r.do("GET", "/collections/orders/documents?ids="+ids, "").want(r.t, 200, `"missing":[`)
	if err := json.Unmarshal([]byte(a.body), &reply); err != nil {
		r.t.Fatal(err)
	}
	for _, d := range reply.Documents {
		have = append(have, d.ID)
	}
	return reply, have
}

// TestSomeDocuments: documents by their ids come in the order of the ids, and those that are missing are
// named.
func TestSomeDocuments(t *testing.T) {
	r := start(t)
	for _, id := range []string{"a", "b", "c%2Cd", "e+f", "g%20h", "%25", "%C3%BC"} {
		r.do("PUT", "/collections/orders/documents/"+id, fmt.Sprintf(`{"is":%q}`, id)).want(t, 201)
	}
	for query, want := range map[string][2][]string{
		"b,x,a":                  {{"b", "a"}, {"x"}},
		"a":                      {{"a"}, {}},
		"a,b,a":                  {{"a", "b", "a"}, {}},
		"x,y":                    {nil, {"x", "y"}},
		"c%2Cd,%C3%BC,%25,g+h":   {{"c,d", "ü", "%", "g h"}, {}},
		"g%20h,e%2Bf,c":          {{"g h", "e+f"}, {"c"}},
		"a%2Cb":                  {nil, {"a,b"}},
		"b,b,x,a,x,c%2Cd,a,e%2B": {{"b", "b", "a", "c,d", "a"}, {"x", "x", "e+"}},
	} {
		reply, have := r.some(query)
		if !slices.Equal(have, want[0]) || !slices.Equal(reply.Missing, want[1]) || reply.Unread != nil {
			t.Errorf("%s: %q, missing %q, unread %q; want %q", query, have, reply.Missing, reply.Unread, want)
		}
	}
	one, _ := r.some("a")
	r.do("GET", "/collections/orders/documents/a", "").want(t, 200, string(one.Documents[0].Document)).header(t,
		"Etag", `"`+one.Documents[0].Etag+`"`)
	r.do("HEAD", "/collections/orders/documents?ids=a,x", "").want(t, 200)
	for query, reason := range map[string]string{
		"ids=": "id is empty", "ids=a,": "id is empty", "ids=a,,b": "id is empty", "ids=%ff": "UTF-8",
		"ids=a&ids=b": "2 times", "ids=a&limit=1": "is not known here: use ids",
		"ids=a&prefix=a": "is not known here: use ids", "ids=" + strings.Repeat("a,", 100) + "a": "101 ids",
		"ids=" + strings.Repeat("x", 256): "255",
	} {
		r.do("GET", "/collections/orders/documents?"+query, "").want(t, 400, reason)
	}
	r.some(strings.Repeat("a,", 99) + "a")
}

// TestSomeLargeDocuments: what a page has no room for is named, and can be asked for again. Where one document may be
// larger than a page, they are read one at a time.
func TestSomeLargeDocuments(t *testing.T) {
	t.Run("some on a page", func(t *testing.T) { someLargeDocuments(t, start(t)) })
	t.Run("larger than a page", func(t *testing.T) {
		someLargeDocuments(t, start(t, func(o *serve.Options) {
			o.NATS = natstest.Start(t, natstest.Options{Config: "max_payload: 8MB"})
		}))
	})
}

func someLargeDocuments(t *testing.T, r *rig) {
	ids, text := []string{}, strings.Repeat("x", 900<<10)
	for i := range 10 {
		ids = append(ids, fmt.Sprintf("d%d", i))
		r.do("PUT", "/collections/orders/documents/"+ids[i], `{"text":"`+text+`"}`).want(t, 201)
	}
	var got []string
	rounds := 0
	for rest := ids; len(rest) > 0; rounds++ {
		reply, have := r.some(strings.Join(rest, ","))
		if len(have) == 0 || len(reply.Missing) > 0 {
			t.Fatalf("%d documents, missing %q", len(have), reply.Missing)
		}
		got, rest = append(got, have...), reply.Unread
	}
	if !slices.Equal(got, ids) || rounds < 2 {
		t.Errorf("%q in %d rounds", got, rounds)
	}
}
