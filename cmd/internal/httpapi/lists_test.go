package httpapi_test

import (
	"encoding/json"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/seed18712806/lapse/sink/wire"
)

// pages reads all pages of a list.
func (r *rig) pages(query string) (ids []string) {
	r.t.Helper()
	for continuation := ""; ; {
		var page wire.ListReply
		a := r.do("GET", "/collections/orders/documents?"+query+"&continuation="+continuation, "").want(r.t, 200)
		if err := json.Unmarshal([]byte(a.body), &page); err != nil {
			r.t.Fatal(err)
		}
		for _, d := range page.Documents {
			ids = append(ids, d.ID)
		}
		if continuation = page.Continuation; continuation == "" {
			return ids
		}
	}
}

// TestListsInOrder: a list by deadline, up to its limit, and one by a prefix have what they should, and
// values that are wrong or contradict each other are 400 with a reason.
func TestListsInOrder(t *testing.T) {
	r := start(t)
	r.do("PUT", "/collections/orders", `{"defaultTtl":-1}`).want(t, 200)
	var want []string
	for i := range 9 {
		id := fmt.Sprintf("d%d", 9-i)
		r.do("PUT", "/collections/orders/documents/"+id, fmt.Sprintf(`{"ttl":%d}`, 1000*(i+1))).want(t, 201)
		want = append(want, id)
	}
	r.do("PUT", "/collections/orders/documents/e%20never", `{}`).want(t, 201)
	for query, ids := range map[string][]string{
		"order=deadline&limit=2": want, "order=deadline&limit=3&within=2500s": want[:2], "order=deadline&within=500s": nil,
		"order=deadline&until=" + url.QueryEscape(time.Now().Add(3500*time.Second).Format(time.RFC3339Nano)): want[:3],
		"prefix=e": {"e never"}, "prefix=e+n&limit=1": {"e never"}, "prefix=x": nil,
	} {
		if got := r.pages(query); !slices.Equal(got, ids) {
			t.Errorf("%s: %v, want %v", query, got, ids)
		}
	}
	all := r.pages("prefix=d&limit=2")
	if slices.Sort(all); len(all) != 9 || all[0] != "d1" || len(slices.Compact(all)) != 9 {
		t.Errorf("by the prefix d: %v", all)
	}
	for query, reason := range map[string]string{
		"order=size": "order", "order=deadline&until=soon": "RFC 3339", "order=deadline&within=0s": "duration over 0",
		"within=1h": "by deadline", "until=2026-01-31T12:00:00Z": "by deadline",
		"order=deadline&within=1h&until=2026-01-31T12:00:00Z": "both", "order=deadline&prefix=d": "prefix",
		"continuation=x":                     "continuation",
		"prefix=" + strings.Repeat("x", 256): "255", "orders=deadline": "is not known",
		"order=deadline&order=deadline": "2 times", "prefix=%ff": "UTF-8",
	} {
		r.do("GET", "/collections/orders/documents?"+query, "").want(t, 400, reason)
	}
}
