package plan

import "time"

// features are what a document or its collection can have, beside a TTL by the default. Each is set by a configuration,
// and by what follows the If-Match of a write and by its body: see verbs.
var features = []struct{ name, config, flags, body string }{
	{"own TTL", `{"defaultTtl":-1}`, "", `{"ttl":5}`},
	{"absolute deadline", `{"defaultTtl":-1}`, "+at5000", `{}`},
	{"kept clock", `{"defaultTtl":5}`, "+keep", `{}`},
	{"not-after", `{"defaultTtl":-1}`, "+till5000", `{"ttl":5}`},
	{"limits", `{"defaultTtl":5,"maxTtl":9}`, "", `{}`},
	{"maxLife", `{"defaultTtl":5,"maxLife":9}`, "", `{}`},
	{"sliding", `{"defaultTtl":5,"slideOnRead":true}`, "", `{}`},
	{"warnings", `{"defaultTtl":5,"warnBefore":[1,4]}`, "", `{}`},
	{"target", `{"defaultTtl":5}`, "+to:mail", `{}`},
	{"changes", `{"defaultTtl":5,"changes":true}`, "", `{}`},
	{"no body", `{"defaultTtl":5,"eventBody":false}`, "", `{}`},
	{"paused", `{"defaultTtl":5,"paused":true}`, "", `{}`},
	{"indexes", `{"defaultTtl":5,"indexes":["/n"]}`, "", `{"n":1}`},
}

// happenings are what can happen to such a document.
var happenings = []string{
	"takeover", "wiped Redis", "snapshot loaded", "full Redis", "full disk", "log truncated", "ends lost", "promotion",
	"drop", "default changed", "off",
}

// Cells lists what [Cell] returns of each feature and each happening.
func Cells() (all []string) {
	for _, f := range features {
		for _, h := range happenings {
			all = append(all, Cell(f.name, h))
		}
	}
	return all
}

// Cell is the name under which histories count that a document with a feature met a happening.
func Cell(feature, happening string) string { return feature + " × " + happening }

// pair lets a document that has a feature meet a happening: by chance alone the rare ones would hardly meet.
func (g *generator) pair() {
	r, f, happening := g.r, features[g.r.IntN(len(features))], happenings[g.r.IntN(len(happenings))]
	at, c, id := g.when(g.length), g.collection(), g.id()
	g.add(at, "config", c, "-", f.config)
	g.add(at+time.Millisecond, "write", "upsert", c, id, "-", f.body)
	g.add(at+20*time.Millisecond, "write", "upsert", c, id, "-"+f.flags, f.body)
	then := at + 50*time.Millisecond + g.within(pick(r, 10*time.Millisecond, time.Second, 4*time.Second))
	long := pick(r, 10*time.Millisecond, 300*time.Millisecond, 2*time.Second)
	switch happening {
	case "takeover":
		g.add(then, "kill", "p0")
		g.add(then+g.within(time.Second), "start", "p0")
	case "wiped Redis":
		g.add(then, "redis-flush")
	case "snapshot loaded":
		g.add(at+30*time.Millisecond, "snapshot")
		g.add(then+time.Second, "redis-flush")
	case "full Redis":
		g.add(then, "redis-full", long)
	case "full disk":
		g.add(then, "events-refuse", long)
	case "log truncated":
		g.add(then, "log-truncate", pick(r, 0, 5, 50))
	case "ends lost":
		g.plan.Sync = pick(r, 100*time.Millisecond, 500*time.Millisecond)
		g.add(then, "power-loss", pick(r, "log 2 events 2", "events 1", "events 5 checkpoints 1"))
	case "promotion":
		if !g.plan.Region {
			g.plan.Region = true
			g.add(then, "promote", pick(r, "handover", "lost", "force"))
		}
	case "drop":
		g.add(then, "drop", c, "-")
	case "default changed":
		g.add(then, "config", c, "-", pick(r, `{"defaultTtl":1}`, `{"defaultTtl":6}`, `{"defaultTtl":-1}`))
	case "off":
		g.add(then, "config", c, "-", `{}`)
	}
}
