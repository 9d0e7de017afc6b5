package integration

import (
	"fmt"
	"strings"

	"github.com/nats-io/nats.go"
	"pgregory.net/rapid"

	"github.com/seed18712806/lapse/integration/harness"
	"github.com/seed18712806/lapse/sink/wire"
)

// histories generates random scenarios of a few seconds: every operation and configuration
// on a few documents. Many messages are sent just before, at or just after a deadline.
var histories = rapid.Custom(func(t *rapid.T) scenario {
	g := generator{t: t, defaults: map[string]int{}, configured: map[string]int{}}
	for c := range collections {
		if body := g.pick("first configuration", ``, `{"defaultTtl":1}`, `{"defaultTtl":1}`, `{"defaultTtl":-1}`,
			`{"defaultTtl":2}`, `{"indexingMode":"none"}`); body != "" {
			g.configure(collectionName(c), body)
		}
	}
	for range 4 + g.number("phases", 5) {
		g.burst()
		for range 1 + g.number("moments", 5) {
			g.moment()
		}
	}
	// The last deadlines pass before the end, or after it.
	g.add(step{after: []int{0, 1100, 2100}[g.number("end", 3)], subject: end})
	return scenario{steps: g.steps}
})

const (
	collections = 2
	documents   = 5 // of each
)

func collectionName(i int) string { return fmt.Sprintf("c%d", i) }

// generator writes a scenario. It keeps a rough idea of the state, to choose deadlines.
type generator struct {
	t        *rapid.T
	steps    []step
	defaults map[string]int // of each collection, in seconds; 0 TTL is off
	writes   []written
	// configured is the line of the last configuration of each collection.
	configured map[string]int
	next       step // the time of the next message
}

// written is a version that may expire.
type written struct {
	line       int
	collection string
	id         string
	ttl        int // its own TTL
}

// number draws a number from 0 to n-1, each with the same probability.
func (g *generator) number(what string, n int) int {
	all := make([]int, n)
	for i := range all {
		all[i] = i
	}
	return rapid.SampledFrom(all).Draw(g.t, what)
}

func (g *generator) pick(what string, of ...string) string {
	return rapid.SampledFrom(of).Draw(g.t, what)
}

func (g *generator) add(st step) int {
	g.steps = append(g.steps, st)
	return len(g.steps)
}

// send adds a message at the time in next.
func (g *generator) send(subject, body string, header nats.Header) int {
	st := g.next
	st.subject, st.body, st.header = subject, body, header
	g.next = step{}
	return g.add(st)
}

// burst adds messages with short gaps.
func (g *generator) burst() {
	for range 4 + g.number("burst", 8) {
		g.next.after = rapid.SampledFrom([]int{0, 0, 1, 3, 10, 40}).Draw(g.t, "gap")
		collection, id := g.document()
		g.message(collection, id)
	}
}

// moment adds messages at a deadline, or a few milliseconds from it.
func (g *generator) moment() {
	var candidates []written
	for _, w := range g.writes {
		if g.ttl(w) > 0 {
			candidates = append(candidates, w)
		}
	}
	if len(candidates) == 0 {
		return
	}
	if n := len(candidates); n > 6 {
		candidates = candidates[n-6:]
	}
	w := candidates[g.number("deadline of", len(candidates))]
	delta := rapid.SampledFrom([]int{-3, -2, -1, -1, 0, 0, 1, 2}).Draw(g.t, "delta")
	g.next = step{of: w.line, after: g.ttl(w)*1000 + delta}
	g.message(w.collection, w.id)
	for range g.number("more", 5) {
		g.next.after = g.number("gap", 2)
		collection, id := w.collection, w.id
		if g.number("elsewhere", 3) == 0 {
			collection, id = g.document()
		}
		g.message(collection, id)
	}
}

// ttl returns the TTL that probably counts; 0 if none.
func (g *generator) ttl(w written) int {
	byDefault := g.defaults[w.collection]
	switch {
	case byDefault == 0 || w.ttl == -1:
		return 0
	case w.ttl > 0:
		return min(w.ttl, 3)
	}
	return max(byDefault, 0)
}

func (g *generator) document() (collection, id string) {
	ids := [documents]string{"a", "b", "ü x", "d.e", "%"}
	return collectionName(g.number("collection", collections)), ids[g.number("id", documents)]
}

// message adds a message of any kind, mostly a write.
func (g *generator) message(collection, id string) {
	switch n := g.number("kind", 100); {
	case n < 10:
		g.configure(collection, g.pick("configuration",
			`{}`, `{"defaultTtl":null}`, `{"defaultTtl":-1}`, `{"defaultTtl":1}`, `{"defaultTtl":1}`,
			`{"defaultTtl":2}`,
			`{"defaultTtl":3}`, `{"defaultTtl":3600}`, `{"changes":true}`, `{"defaultTtl":2,"changes":true}`,
			`{"defaultTtl":2,"warnBefore":[1],"changes":true}`, `{"defaultTtl":1,"eventBody":false}`,
			`{"defaultTtl":1,"eventBody":false,"changes":true}`, `{"defaultTtl":2,"warnBefore":[1],"eventBody":false}`,
			`{"defaultTtl":2,"minTtl":2,"maxTtl":3600}`, `{"defaultTtl":-1,"minTtl":1,"warnBefore":[5]}`,
			`{"defaultTtl":2,"warnBefore":[1]}`, `{"defaultTtl":3,"warnBefore":[1,2]}`,
			`{"defaultTtl":-1,"warnBefore":[1]}`, `{"defaultTtl":2,"maxLife":3}`,
			`{"defaultTtl":-1,"maxLife":2,"warnBefore":[1]}`, `{"defaultTtl":3600,"maxLife":2}`,
			`{"indexingMode":"none"}`, `{"indexingMode":"none"}`, `{"indexingMode":"consistent"}`,
			`{"indexingMode":"lazy"}`))
	case n < 12:
		g.send("drop."+collection, "", g.configMatch(collection))
	case n < 15:
		g.pause(collection)
	case n < 17:
		g.drain(collection)
	case n < 21:
		g.bad(collection, id)
	default:
		g.write(collection, id)
	}
}

func (g *generator) configure(collection, body string) {
	g.configured[collection] = g.send("config."+collection, body, g.configMatch(collection))
	seconds := map[string]int{`{"defaultTtl":1,"paused":true}`: 1, `{"defaultTtl":2,"paused":true}`: 2,
		`{"defaultTtl":1,"eventBody":false,"paused":true}`: 1, `{"defaultTtl":2,"warnBefore":[1],"paused":true}`: 2,
		`{"defaultTtl":-1,"changes":true,"paused":true}`: -1,
		`{"defaultTtl":1}`: 1, `{"defaultTtl":2}`: 2, `{"defaultTtl":3}`: 3, `{"defaultTtl":-1}`: -1,
		`{"defaultTtl":2,"changes":true}`: 2, `{"defaultTtl":2,"warnBefore":[1],"changes":true}`: 2,
		`{"defaultTtl":1,"eventBody":false,"changes":true}`:   1,
		`{"defaultTtl":1,"eventBody":false}`:                  1,
		`{"defaultTtl":2,"warnBefore":[1],"eventBody":false}`: 2,
		`{"defaultTtl":2,"minTtl":2,"maxTtl":3600}`:           2, `{"defaultTtl":-1,"minTtl":1,"warnBefore":[5]}`: -1,
		`{"defaultTtl":2,"warnBefore":[1]}`: 2, `{"defaultTtl":3,"warnBefore":[1,2]}`: 3,
		`{"defaultTtl":-1,"warnBefore":[1]}`: -1,
		`{"defaultTtl":2,"maxLife":3}`:       2, `{"defaultTtl":-1,"maxLife":2,"warnBefore":[1]}`: 2,
		`{"defaultTtl":3600,"maxLife":2}`: 2}
	g.defaults[collection] = seconds[body]
}

// pause pauses a collection, perhaps with another default, or resumes it.
func (g *generator) pause(collection string) {
	g.configure(collection, g.pick("pause", `{"defaultTtl":1,"paused":true}`, `{"defaultTtl":1,"paused":true}`,
		`{"defaultTtl":2,"paused":true}`,
		`{"defaultTtl":1,"eventBody":false,"paused":true}`, `{"defaultTtl":2,"warnBefore":[1],"paused":true}`,
		`{"defaultTtl":-1,"changes":true,"paused":true}`, `{"paused":true}`, `{"defaultTtl":1}`))
}

// configMatch sometimes makes an If-Match with the last configuration that was sent, which
// may have been rejected or dropped.
func (g *generator) configMatch(collection string) nats.Header {
	header := nats.Header{}
	switch n := g.number("If-Match of a configuration", 8); {
	case n == 0:
		header.Set(wire.HeaderIfMatch, "*")
	case n < 3 && g.configured[collection] != 0:
		header.Set(wire.HeaderIfMatch, fmt.Sprintf("#%d", g.configured[collection]))
	}
	return header
}

// drain drops a collection, or its index, while many of its documents are due.
func (g *generator) drain(collection string) {
	g.configure(collection, `{"defaultTtl":1}`)
	if g.number("lost", 2) == 0 {
		g.send("drop."+collection, "", nil)
		g.defaults[collection] = 0
		return
	}
	g.configure(collection, `{}`)
	g.configure(collection, `{"indexingMode":"none"}`)
}

func (g *generator) write(collection, id string) {
	op := rapid.SampledFrom([]wire.Op{
		wire.Upsert, wire.Upsert, wire.Upsert, wire.Create, wire.Create, wire.Replace, wire.Patch, wire.Touch,
		wire.Touch, wire.Delete,
	}).Draw(g.t, "operation")
	body, own := "", 0
	if op.HasBody() {
		ttl := g.pick("ttl", "", "", "", "", "1", "1", "2", "-1", "null", "3600")
		_, _ = fmt.Sscanf(ttl, "%d", &own) // 0 if it is no number
		body = fmt.Sprintf(`{"n":%d}`, len(g.steps)+1)
		if ttl != "" {
			body = fmt.Sprintf(`{"n": %d, "ttl": %s}`, len(g.steps)+1, ttl)
		}
		if g.number("deep", 30) == 0 { // as many levels as a body may have, or one more
			body = strings.TrimSuffix(body, "}") + `,"deep":` + nested(999+g.number("too deep", 2)) + "}"
		}
	}
	header := nats.Header{}
	switch n := g.number("If-Match", 10); {
	case n == 0:
		header.Set(wire.HeaderIfMatch, "*")
	case n == 1 && len(g.writes) > 0:
		header.Set(wire.HeaderIfMatch, fmt.Sprintf("#%d", g.writes[len(g.writes)-1].line))
	}
	if g.number("trace", 8) == 0 {
		header.Set(wire.HeaderTrace, fmt.Sprintf("%s-%032x-%016x-01", g.pick("version", "00", "00", "cc", "ff"),
			len(g.steps)+1, 1))
	}
	if op != wire.Delete && g.number("deadline", 8) == 0 { // one that is too early, or goes with a ttl, is refused
		header.Set(wire.HeaderExpiresAt, g.pick("expires at", "@-100", "@500", "@1000", "@1000", "@2000"))
	}
	if own > 0 && op != wire.Patch && g.number("limit", 3) == 0 { // with a deadline it is refused
		header.Set(wire.HeaderNotAfter, g.pick("not after", "@500", "@1000", "@1500", "@2500"))
	}
	if op.HasBody() && g.number("target", 4) == 0 { // a patch with one is refused
		header.Set(wire.HeaderTarget, g.pick("to", "mail", "mail.send", "mail.send", "a.b.c", "a..b"))
	}
	if op != wire.Delete && op != wire.Touch && g.number("clock", 4) == 0 {
		header.Set(wire.HeaderClock, wire.ClockKeep)
	}
	if op != wire.Delete && g.number("begin", 6) == 0 { // one that is to come is refused
		header.Set(wire.HeaderClock,
			g.pick("begins at", "@-3600000", "@-2000", "@-1000", "@-500", "@-1", "@0", "@500", "@-500; created=@-2000",
				"@0; created=@-3000", "@-1000; created=@-1000", "@-1000; created=@-500"))
	}
	subject := wire.Prefix("p").Write(op, collection, id)[len("p."):]
	line := g.send(subject, body, header)
	if op != wire.Delete {
		g.writes = append(g.writes, written{line, collection, id, own})
	}
}

// bad adds a message that lapse most likely rejects.
func (g *generator) bad(collection, id string) {
	subject := wire.Prefix("p").Write(wire.Upsert, collection, id)[len("p."):]
	switch g.number("bad", 8) {
	case 0:
		g.send(subject, g.pick("bad body", `{`, `[]`, ``, "{\"a\":\"\xff\"}", `{"id":"other"}`), nil)
	case 1:
		g.send(subject, `{"ttl":`+g.pick("bad ttl", `0`, `-2`, `1.5`, `"1"`, `2147483648`, `true`)+`}`, nil)
	case 2:
		g.send("config."+collection, g.pick("bad configuration", `{"defaultTtl":0}`,
			`{"defaultTtl":1,"indexingMode":"none"}`, `{"ttl":1}`, ``, nested(1001)), nil)
	case 3:
		g.send(subject, `{}`, harness.Header(wire.HeaderIfMatch, g.pick("bad If-Match", `"1"`, `W/1`, `0`, ``)))
	case 4:
		g.send(g.pick("bad subject", "write.upsert."+collection, "write.upsert."+collection+".%zz", "write.bogus."+
			collection+".a", "write.upsert.c$.a", "config."+collection+".x"), `{}`, nil)
	case 5:
		g.send("write.touch"+subject[len("write.upsert"):], g.pick("body of a touch", `{}`, ``),
			harness.Header(g.pick("header of a touch", wire.HeaderSlide, wire.HeaderTrace), "true"))
	case 6:
		g.send(subject, `{}`, harness.Header(g.pick("bad header", "Lapse-Unknown", wire.HeaderClock,
			wire.HeaderExpiresAt, wire.HeaderNotAfter, wire.HeaderSlide), "x"))
	default:
		g.send("drop."+collection, `x`, nil)
	}
}
