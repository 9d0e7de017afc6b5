package plan

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
)

// indexSets are the values of the property indexes. The pointers share slots in one way or another when a collection
// goes from one set to the next.
var indexSets = []string{
	`["/n"]`, `["/tag"]`, `["/list"]`, `["/n","/tag"]`, `["/tag","/list"]`, `["/list","/n","/tag"]`, `["/o/k","/n"]`,
	`["/list/0"]`, `[]`,
}

// values are the values that a document may have at each pointer but /list. Few of them are there, so that many
// documents
// have the same. The long text and the objects are not indexed.
var values = []string{
	`1`, `1`, `2`, `2`, `10`, `-1`, `1.0`, `-0`, `1e400`, `"a"`, `"a"`, `"b"`, `"ab"`, `"\u0000"`, `""`, `true`,
	`false`, `null`, `{"k":1}`, `"~256~"`,
}

// lists are the values at /list: arrays, and what is not indexed.
var lists = []string{`["a","b"]`, `["a","b"]`, `["b","a","b"]`, `[1,"a"]`, `[2,1]`, `[]`, `["a",{}]`, `[[1]]`,
	`["a","~256~"]`, `"a"`}

// indexes lets configurations have indexes, and documents the values for them. Clients add indexes and remove them
// while
// documents change, and query by them.
func (g *generator) indexes() {
	r := g.r
	g.plan.Found = pick(r, 0, 1, 1, 3)
	for i, s := range g.plan.Steps {
		switch {
		case s.Verb == "config" && r.IntN(4) > 0 && !strings.Contains(s.Args[2], "indexes"):
			g.plan.Steps[i].Args[2] = withMember(s.Args[2], `"indexes":`+pick(r, indexSets...))
		case s.Verb == "write" && s.Args[0] == "patch" && r.IntN(2) == 0, s.Verb == "write" &&
			strings.HasPrefix(s.Args[4], "{"):
			for _, member := range g.members(s.Args[0] == "patch") {
				g.plan.Steps[i].Args[4] = withMember(g.plan.Steps[i].Args[4], member)
			}
		case s.Verb == "flood" && r.IntN(2) == 0:
			g.plan.Steps[i].Args[2] = withMember(s.Args[2], pick(r, `"n":1`, `"tag":"a"`, `"list":["a","b"]`))
		}
	}
	for range r.IntN(4) {
		g.add(g.when(g.length+time.Second), "config", g.collection(), "-",
			fmt.Sprintf(`{"defaultTtl":%d,"indexes":%s}`, pick(r, 1, 2, -1), pick(r, indexSets...)))
	}
	for range 2 + r.IntN(5) {
		g.query()
	}
	if r.IntN(6) == 0 {
		g.add(g.when(g.length+time.Second), "redis-damage", "entry", r.IntN(100))
	}
}

// withMember is a JSON object with one more member.
func withMember(object, member string) string {
	return strings.Replace(strings.TrimSuffix(object, "}")+","+member+"}", "{,", "{", 1)
}

// members are members of a document, or of a patch, at the pointers that may be indexed.
func (g *generator) members(patch bool) (members []string) {
	r := g.r
	for _, name := range []string{"n", "tag"} {
		if r.IntN(3) > 0 {
			members = append(members, fmt.Sprintf("%q:%s", name, pick(r, values...)))
		}
	}
	if r.IntN(2) == 0 {
		members = append(members, `"list":`+pick(r, lists...))
	}
	if r.IntN(4) == 0 {
		members = append(members, `"o":`+pick(r, `{"k":1}`, `{"k":"a"}`, `{"k":null}`, `{}`, `1`))
	}
	if patch && len(members) > 1 { // a patch that changes the one value, and leaves the other
		members = members[:1]
	}
	return members
}

// conditions are conditions on a pointer.
var conditions = []string{
	`"a"`, `"a"`, `1`, `1`, `true`, `null`, `{"in":["a","b",1]}`, `{"in":[2,1]}`, `{"gt":1}`, `{"gte":1}`, `{"lte":1}`,
	`{"gte":-1,"lt":2}`,
	`{"gte":"a"}`, `{"gt":"a","lte":"b"}`, `{"lt":"b"}`, `{"prefix":"a"}`, `{"prefix":""}`,
}

// query adds a query in pages, of which each may come a while after the one before.
func (g *generator) query() {
	r := g.r
	at, collection := g.when(g.length+2*time.Second), g.collection()
	pointers := []string{"/n", "/tag", "/list", "/o/k", "/list/0"}
	likely := pointers
	if declared := g.declared(collection, at); len(declared) > 0 && r.IntN(5) > 0 {
		likely = declared
	}
	where := map[string]string{}
	for i := range pick(r, 0, 1, 1, 1, 2, 2, 3) {
		where[pick(r, map[bool][]string{true: likely, false: pointers}[i == 0]...)] = pick(r, conditions...)
	}
	order := pick(r, "none", "none", "none", pick(r, likely...), pick(r, likely...), "-"+pick(r, likely...), "deadline",
		"id")
	page := fmt.Sprint(pick(r, 1, 2, 2, 3, 5, 100), pick(r, "", "", "", "+count", "+scan"))
	pace := pick(r, 0, 0, time.Millisecond, 20*time.Millisecond, 300*time.Millisecond)
	var members []string
	for _, pointer := range slices.Sorted(maps.Keys(where)) {
		members = append(members, fmt.Sprintf("%q:%s", pointer, where[pointer]))
	}
	g.add(at, "query", collection, page, pace, order, "{"+strings.Join(members, ",")+"}")
}

// declared are the pointers of the indexes that the last configuration of a collection before an instant declares.
func (g *generator) declared(collection string, at time.Duration) (pointers []string) {
	last := time.Duration(-1)
	for _, s := range g.plan.Steps {
		if s.Verb != "config" || s.Args[0] != collection || s.At > at || s.At < last {
			continue
		}
		var c struct{ Indexes []string }
		if json.Unmarshal([]byte(s.Args[2]), &c) == nil {
			pointers, last = c.Indexes, s.At
		}
	}
	return pointers
}
