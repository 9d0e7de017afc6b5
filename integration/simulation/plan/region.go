package plan

import "time"

// region lets a second region follow the first. In most histories the link lies, or the process or the Redis of the
// second
// region fails.
func (g *generator) region() {
	r := g.r
	g.plan.Region = true
	if r.IntN(3) > 0 {
		at := g.when(g.length + 3*time.Second)
		g.add(at, "promote", pick(r, "handover", "lost", "force"))
		for range r.IntN(2) * r.IntN(40) { // what clients send meanwhile
			g.add(at+g.within(10*time.Millisecond), "write", pick(r, "create", "upsert", "upsert"), g.collection(),
				g.id(), "-", pick(r, `{}`, `{"ttl":1}`))
		}
	}
	for range r.IntN(8) {
		at, long := g.when(g.length+2*time.Second), pick(r, 10*time.Millisecond, 300*time.Millisecond, time.Second,
			2*time.Second, 4*time.Second)
		what := pick(r, "log", "events", "questions", "all")
		switch verb := pick(r, "link-cut", "link-flap", "link-hold", "link-hold", "link-slow", "link-old", "far-kill",
			"far-stand", "far-disconnect", "far-flush", "far-slow"); verb {
		case "link-flap":
			for range 2 + r.IntN(8) {
				g.add(at, "link-cut", g.within(300*time.Millisecond))
				at += g.within(600 * time.Millisecond)
			}
		case "link-hold":
			g.add(at, verb, what, long)
		case "far-slow":
			g.add(at, verb, pick(r, 100, 2000), long)
		case "link-slow":
			g.add(at, verb, what, pick(r, 5, 100, 2000), long)
		case "link-old":
			if g.plan.Replicas > 1 { // one server is never behind itself
				g.add(at, verb, long)
			}
		case "link-cut", "far-stand":
			g.add(at, verb, long)
		case "far-kill":
			g.add(at, verb)
			g.add(at+g.within(2*time.Second), "far-start")
		default:
			g.add(at, verb)
		}
	}
}
