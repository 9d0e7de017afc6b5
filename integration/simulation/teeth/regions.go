package main

// regionTeeth break what a second region that follows the first does. M1 to M3 are those of package region.
var regionTeeth = []tooth{
	{"commit-before-the-mirror", "M1", "processor/internal/shard/await.go",
		"A follower commits before the mirror has the event: after a promotion it is lost.",
		`	for len(outputs) > 0 {
		found`,
		`	for len(outputs) > 1<<20 {
		found`},
	{"cut-adopted-early", "M2", "processor/internal/region/follower.go",
		"Checkpoints of the first region are adopted before the mirrors have what they name.",
		`	if !here.reach(f.pending.ends) {`,
		`	if here.log > here.events+1<<40 {`},
	{"truncated-without-looking", "M3", "processor/internal/region/adopt.go",
		"A follower truncates its log as the first region does, whatever it has applied.",
		`	if !f.applied(c.first - 1) {`,
		`	if !f.applied(0) {`},
	{"follower-appends-ticks", "M1", "processor/follower.go",
		"A follower appends ticks to the log of the first region.",
		`	s.ticker.Silent(func(`,
		`	(func(func(context.Context) (uint64, error)) {})(func(`},
	{"lost-outputs-count", "G3", "sink/events/message.go",
		"An output of a message that a promotion has lost counts as that of the message that came in its place.",
		`		if at <= f.events && seq > f.last {`,
		`		if at <= f.events && seq > f.last+1<<40 {`},
	{"former-log-forgotten", "G3", "sink/events/message.go",
		"Outputs of messages from before a promotion name the log that the region has since.",
		`		if seq <= f.last {
			return f.uri`,
		`		if seq <= f.last {
			return s.uri`},
	{"end-noted-before-the-mirror-ends", "G3", "processor/internal/streams/promote.go",
		"A promotion notes where a mirror ends while more messages come.",
		`		info = stream.CachedInfo()
		c = info.Config
`,
		`		c = stream.CachedInfo().Config
`},
	{"gone-on-refused", "G7", "processor/internal/shard/examine.go",
		"A promoted region refuses what it has applied itself before it noticed the promotion.",
		`	case e.log.Continues(f.State.Log):`,
		`	case e.log.Continues(f.State.Log) && f.State.Log == "":`},
	{"promotion-refused-as-another-log", "G7", "processor/follower.go",
		"A follower that meets the promoted log refuses it for good.",
		`	if s.follower != nil && streams.AsRefusal(err) != nil && promoted(`,
		`	if s.follower != nil && err == nil && promoted(`},
	{"waits-for-a-lost-region", "G7", "processor/internal/region/follower.go",
		"A follower that waits for its first cut does not hear that its region was promoted.",
		`	watch.Go(func() { cancel(f.WatchRole(ctx)) })`,
		`	watch.Go(func() { _ = f.WatchRole(ctx) })`},
	{"events-ahead-refused", "G7", "processor/internal/shard/examine.go",
		"A follower refuses its log because the mirror of the events is ahead of that of the log.",
		`f.Log.Config.Mirror != nil {`,
		`f.Log.Config.Mirror != nil && last == 0 {`},
	{"old-answer-of-the-first-region", "G7", "processor/internal/region/diverge.go",
		"An answer that is out of date makes a follower refuse its mirror for good.",
		`time.Since(f.shorter) < believeShorter {`,
		`time.Since(f.shorter) < 0 {`},
}
