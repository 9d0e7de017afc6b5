package main

import "slices"

// teeth are in the order of the rooms of processor/doc.go.
var teeth = append([]tooth{
	// shard: what it reads
	{"log-time-is-last-stamp", "G4 S2", "processor/internal/shard/logtime.go",
		"Log time falls when the clock of NATS falls.",
		`	return c.last.Time`,
		`	return stamp`},
	{"clock-guard-off", "G4 S2", "processor/internal/shard/clockguard.go",
		"A stamp that leads all clocks by far makes documents expire.",
		`	if stamp.Sub(g.clocks.Own()) <= g.most {`,
		`	if -stamp.Sub(g.clocks.Own()) <= g.most {`},
	{"silence-unnoticed", "G1", "processor/internal/shard/pull.go",
		"Nothing is read any more once the requests for messages are lost.",
		`if p.silent++; p.silent > 2 && len(p.messages) == 0 {`,
		`if p.silent++; p.silent > 2 && p.open == 0 {`},
	{"skip-one-too-many", "G1 I2", "processor/internal/shard/queue.go",
		"After a takeover the first message that is not applied yet is dropped.",
		`q.messages[n].Seq <= offset {`,
		`q.messages[n].Seq <= offset+1 {`},
	{"message-from-before-a-rewind", "G1 I1 I2", "processor/internal/shard/queue.go",
		"A message that was read before the owner rewound the queue is put in, so those before it are dropped.",
		`	if q.ended || q.rewinds != reading {
		return false
	}
	if m.Seq`,
		`	if q.ended {
		return false
	}
	if m.Seq`},
	{"ticker-not-told", "G3", "processor/internal/shard/ticker.go",
		"No tick is sent for a deadline that is earlier than the one before.",
		`; at < was {`,
		`; at > was {`},
	{"problem-of-a-tick-stays", "G11", "processor/internal/shard/ticker.go",
		"A tick that was not appended is a problem for ever, if no other is needed.",
		`			if failed { // log time`,
		`			if failed && needed && rest < 0 { // log time`},
	{"silent-clock-unseen", "G3", "processor/internal/shard/ticker.go",
		"Events are late by as much as NATS's clock was set forward while the log was silent.",
		`	if t.known && ahead > t.ahead {`,
		`	if t.known && ahead > t.ahead+time.Hour {`},
	{"problem-of-the-clock-stays", "G11", "processor/internal/shard/clockguard.go",
		"A message that was held up is a problem for ever, if its reader has stopped.",
		`held != 0 && !g.Holds() &&`,
		`held != 0 && g.Holds() &&`},

	// identity, message
	{"gap-passed-over", "G12", "processor/internal/streams/gap.go",
		"What is missing from the middle of the log is never applied, and nobody hears of it.",
		`if g.Last > after { // else`,
		`if g.Last > after && g.First == 0 { // else`},
	{"old-answer-believed", "G7", "processor/internal/streams/identity.go",
		"A replica that lags behind makes lapse refuse its log.",
		`info.State.LastSeq >= seq || info.Config.Replicas <= 1 {`,
		`info.Config.Replicas <= 3 {`},
	{"truncated-log-accepted", "G7 S8", "processor/internal/streams/identity.go",
		"A log is accepted although messages that were never applied are no longer in it.",
		`	case log.FirstSeq > offset+1:`,
		`	case log.FirstSeq > max(offset, log.LastSeq)+1:`},
	{"lost-end-not-looked-for", "G1", "processor/internal/streams/identity.go",
		"A log that loses its end while lapse begins to read is gone on from.",
		`	if err == nil && !found {`,
		`	if err == nil && !found && at > 0 {`},
	{"later-stamp-accepted", "G7 S8", "processor/internal/streams/identity.go",
		"A log is accepted that lost its end and was written again.",
		`	case found && at != seen.At:`,
		`	case found && at < seen.At:`},
	{"unknown-operation-applied", "G8", "processor/internal/fold/decode.go",
		"A write with an unknown operation is applied as an upsert.",
		`	if !slices.Contains(wire.Ops, m.Op) {`,
		`	if m.Op == "" {`},

	// state
	{"commit-without-its-offset", "G1 S4", "processor/internal/fold/progress.go",
		"A commit stores the offset from before its step, so a crash applies the step twice.",
		`		Offset:    to.Seq,`,
		`		Offset:    p.offset,`},
	{"rebuild-mark-dropped", "G7", "processor/internal/fold/progress.go",
		"The first commit of a rebuild says that it is over: readers miss documents.",
		`	if to.Seq < p.rebuild {`,
		`	if to.Seq < p.committedOffset {`},
	{"deadlines-forgotten-by-restart", "G3 S9", "processor/internal/fold/collections.go",
		"What was stored before a takeover does not expire by itself after it.",
		`		s.LookedUp(s.Make(name), unknown, unknown)`,
		`		s.Make(name)`},
	{"settled-while-due", "G5 S9", "processor/internal/fold/collections.go",
		"Epochs and old generations go while documents in them are due.",
		`c.due.at > now && !due[c.Name]`,
		`!due[c.Name]`},

	// decide
	{"watermark-ignored", "G4 S2", "processor/internal/fold/decide.go",
		"Log time falls after a restart, as the reader does not know the greatest stamp.",
		`	at := max(d.Watermark, m.Time)`,
		`	at := m.Time`},
	{"expired-version-overwritten", "G3 S1", "processor/internal/fold/decide.go",
		"A write replaces or finds an expired version, which has no event.",
		`	d.expireIn(s, config, replaces)
	indexes`,
		`	_ = replaces
	indexes`},
	{"live-at-the-deadline", "G2 S1", "processor/internal/fold/decide.go",
		"A write that is stamped at the deadline finds the document alive.",
		`config.History.Expired(live.Header.Clock(), at)`,
		`config.History.Expired(live.Header.Clock(), at-1)`},
	{"old-default-expires-a-kept-clock", "G5 I3", "processor/internal/fold/decide.go",
		"A version that keeps an older clock comes to the index under the cut of a default that ended before it.",
		`v.Header.Band = band`,
		`v.Header.Band = min(band, 0)`},

	// warn
	{"warned-twice", "G3 W1", "processor/internal/fold/warn.go",
		"A version that goes is warned of once more.",
		`m.band != in.Band(score) || !m.end.Before(store.Place{Score: score, ID: key.ID}) {`,
		`score < 0 {`},
	{"warned-after-the-end", "G3 W2", "processor/internal/fold/decide.go",
		"A version that expires late is warned of behind its event.",
		`	d.leaves(key, v, x.At)
	d.Expired++`,
		`	defer d.leaves(key, v, x.At)
	d.Expired++`},
	{"not-warned-before-a-write", "G3 W2", "processor/internal/fold/decide.go",
		"A version that is overwritten late takes its warning along.",
		`		d.leaves(s.Key, live, at)
	}`,
		`	}`},
	{"checkpoint-while-warnings-are-due", "G3 W1", "processor/internal/shard/owner.go",
		"A checkpoint says that all warnings are published while some are due.",
		`case p.collections.FirstWarning() > p.progress.CommittedWatermark():`,
		`case true:`},
	{"takeover-warns-from-now-on", "G3 W1", "processor/internal/shard/warn.go",
		"A takeover begins with the warnings that fall due after it.",
		`p.collections.WarnFrom(p.announcer.PublishedUpTo().Watermark)`,
		`p.collections.WarnFrom(max(p.announcer.PublishedUpTo().Watermark, p.progress.Watermark()))`},
	{"configuration-before-its-warnings", "G3 W3", "processor/internal/shard/control.go",
		"What a configuration asks for is lost if the next one comes before it is published.",
		`|| p.collections.MayWarn(m.Collection, at)) {`,
		`|| false) {`},

	// clock, reads
	{"kept-clock-restarted-by-a-patch", "G3", "processor/internal/fold/clock.go",
		"A patch that is to keep the clock begins a new one.",
		`	if m.Clock.Keep && live != nil {`,
		`	if m.Clock.Keep && live != nil && m.Op != wire.Patch {`},
	{"deadline-lost-by-a-touch", "G3", "processor/internal/fold/clock.go",
		"A touch takes the absolute deadline from a document.",
		`	case m.Op == wire.Touch, m.Op == wire.Patch:`,
		`	case m.Op == wire.Patch:`},
	{"slide-of-any-version", "slideOnRead", "processor/internal/fold/decide.go",
		"A touch for a read renews a version that somebody else has written since.",
		`	case m.IfMatch.Etag != 0 && m.IfMatch.Etag != wire.Etag(live.Header.Etag):`,
		`	case m.IfMatch.Etag != 0 && !m.Slide && m.IfMatch.Etag != wire.Etag(live.Header.Etag):`},
	{"absolute-deadline-slides", "slideOnRead", "ttlrules/clock.go",
		"Reads touch documents with an absolute deadline.",
		`part > 0 && c.Absolute == 0 && deadline`,
		`part > 0 && deadline`},
	{"slides-at-each-read", "slideOnRead", "ttlrules/clock.go",
		"Reads touch a document more than ten times a TTL.",
		`float64(now-c.Begin()) >`,
		`float64(100*(now-c.Begin())) >`},
	{"last-member-not-listed", "lists", "sink/ordered.go",
		"A list by deadline misses the last member that Redis has sent.",
		`	for ; expire && len(found) > 1; found`,
		`	for ; expire && len(found) > 2; found`},
	{"list-goes-on-after-a-score", "lists", "sink/ordered.go",
		"A list by deadline misses documents with the deadline of the last one of a page.",
		`newPlace(last.deadline, last.id)`,
		`newPlace(last.deadline, "~")`},
	{"walk-goes-on-after-a-score", "lists", "sink/list.go",
		"A list misses documents that were written at the same instant as the last one of a page.",
		`newPlace(score, reply.Str(walkID))`,
		`newPlace(score, "~")`},

	// shard: the owner
	{"tick-before-the-fences", "G3 S6", "processor/internal/shard/takeover.go",
		"What a former owner publishes between the tick and the fences is not looked up.",
		`	if err := p.claim(ctx, &v); err != nil {
		return 0, err
	}
	if upTo, err = p.Ticker.Barrier(ctx); err != nil {
		return 0, err
	}`,
		`	if upTo, err = p.Ticker.Barrier(ctx); err != nil {
		return 0, err
	}
	if err := p.claim(ctx, &v); err != nil {
		return 0, err
	}`},
	{"tick-not-counted", "G3 S6", "processor/internal/shard/takeover.go",
		"An answer that is out of date says where the log ends, so look-ups are left out.",
		`published, last := v.Published(), upTo`,
		`published, last := v.Published(), v.Log.State.LastSeq
	upTo = last`},
	{"skipped-messages-forgotten", "G1 S7", "processor/internal/fold/pending.go",
		"An owner skips messages that another has applied, and does not read them again when Redis loses that.",
		`	p.Base = max(p.Base, offset)
`, ``},
	{"rollback-not-read-again", "G7 S7", "processor/internal/shard/takeover.go",
		"After Redis went back to an earlier state, the messages since are not applied again.",
		`	older := !p.tenure.everTaken || stored.Offset < p.pending.Base`,
		`	older := !p.tenure.everTaken`},
	{"checkpoint-while-due", "G3 S9", "processor/internal/shard/owner.go",
		"A checkpoint says that all events are published while documents are due.",
		`	case p.firstDue() <= p.progress.CommittedWatermark():
		p.Status.Due.Store(min(known, p.progress.CommittedWatermark()))
	case p.collections`,
		`	case p.collections`},
	{"checkpoint-ahead", "G3 S3", "processor/internal/shard/owner.go",
		"A checkpoint says that all outputs are published up to where the log was read.",
		`Seq: p.progress.CommittedOffset(), Watermark:`,
		`Seq: p.Queue.Read().Seq, Watermark:`},
	{"damage-not-looked-for", "G7", "processor/internal/shard/owner.go",
		"Documents that Redis lost stay lost while lapse runs.",
		`p.verify(ctx, p.collections.ToVerify(verifyAtOnce))`,
		`p.verify(ctx, nil)`},
	{"jumps-over-pending", "G1 C2", "processor/internal/shard/step.go",
		"A step moves the offset past messages that it leaves for the next.",
		`	if len(messages) < len(p.pending.Messages) || to.Seq <= here.Seq {`,
		`	if to.Seq <= here.Seq {`},
	{"time-committed-with-the-message", "G1 S4", "processor/internal/shard/step.go",
		"A message that has to wait for readers counts as applied.",
		`	return p.commit(ctx, fold.Position{Seq: m.Seq - 1, Time: p.logTimeAt(m)}, nil, nil)`,
		`	return p.commit(ctx, fold.Position{Seq: m.Seq, Time: p.logTimeAt(m)}, nil, nil)`},
	{"wrong-clock-for-readers", "G2 S10", "processor/internal/shard/lookup.go",
		"An event is published by the owner's clock, and readers go by Redis's.",
		`	return max(p.progress.CommittedWatermark(), p.Store.Clock())`,
		`	return max(p.progress.CommittedWatermark(), time.Now().UnixMilli())`},
	{"drop-loses-due", "G3 S9", "processor/internal/shard/control.go",
		"A drop removes documents that became due since the message before, without events.",
		`	due := p.collections.MayBeDue(m.Collection, at, &p.due)`,
		`	due := p.collections.MayBeDue(m.Collection, p.progress.Watermark(), &p.due)`},
	{"forgets-looked-up-documents", "G3 S9", "processor/internal/shard/lookup.go",
		"Documents that were looked up before their deadline are forgotten at the next look-up.",
		`		p.collections.Note(p.collections.Make(doc.Key.Collection), &doc.Header)`,
		`		p.collections.Make(doc.Key.Collection)`},
	{"reaped-behind-a-message", "G3 S9", "processor/internal/shard/reap.go",
		"The step behind one with messages reaps a document that a message has found expired: its event comes twice.",
		`w.decision.NamesDocuments() ||`,
		`false ||`},
	{"look-ahead-passes-one-too-many", "G3 S9", "processor/internal/shard/lookup.go",
		"The look-up ahead passes over a document that is not in the due queue: it has no event.",
		`Index: ttlrules.ByInherit, Band: cut.Band}]`,
		`Index: ttlrules.ByInherit, Band: cut.Band}] + 1`},
	{"look-ahead-over-a-lower-document", "G3 S9", "processor/internal/shard/lookup.go",
		"The look-up ahead goes on although a document came below what was found: it passes over that one.",
		`		if !c.Continues() {`,
		`		if c == nil {`},
	{"publish-after-commit", "G3 S3 S9", "processor/internal/shard/commit.go",
		"A crash between commit and publication loses events and rejections.",
		`		if published, err = p.publish(ctx, w); err != nil {
			return false, err
		}
`,
		`		published = func() error { return nil }
		defer func(w *work) {
			if err != nil {
				return
			}
			if published, err = p.publish(ctx, w); err == nil {
				err = published()
			}
		}(w)
`},
	{"overwritten-stays-queued", "G3 S1", "processor/internal/fold/change.go",
		"A version that was replaced just before its deadline gets an event all the same.",
		`		queue.Remove(Key{Collection: c.Collection, ID: change.ID})`,
		`		if change.New == nil { queue.Remove(Key{Collection: c.Collection, ID: change.ID}) }`},
	{"due-queue-kept", "G3", "processor/internal/shard/takeover.go",
		"An owner goes by what it had looked up before another owner turned TTL off: a document that lives on gets an event.",
		`	p.due.Set(nil)
	if older {`,
		`	if older {`},

	// shard: what it publishes
	{"no-fence-in-the-stream", "G3 S5", "processor/internal/shard/publish.go",
		"A late publication of a former owner is stored after it was looked up.",
		`fence, err = c.Publisher.Fence(ctx, a.shard)`,
		`fence = c.Publisher.Unfenced(a.shard)`},
	{"look-up-left-out", "G3 S6 N2", "processor/internal/shard/published.go",
		"What the stream of events has since the checkpoint is published again.",
		`		return maybePublished`,
		`		return isNew`},
	{"checkpoint-one-too-far", "G3 N1", "processor/internal/shard/published.go",
		"The output after a checkpoint counts as published.",
		`	case cause <= checkpoint:`,
		`	case cause <= checkpoint+1:`},

	// the processor, shard: examinations
	{"overdue-told-late", "G11", "processor/monitor.go",
		"That an event is overdue is told after a minute.",
		`	overdueAfter  = 5 * time.Second`,
		`	overdueAfter  = 60 * time.Second`},
	{"behind-told-late", "G11", "processor/monitor.go",
		"That the log is not applied is told after more than 10 s.",
		`	behindAfter   = 7 * time.Second`,
		`	behindAfter   = 10 * time.Second`},
	{"health-looked-at-seldom", "G11", "processor/monitor.go",
		"The monitor looks every 20 s.",
		`	monitorEvery  = time.Second`,
		`	monitorEvery  = 20 * time.Second`},
	{"refused-by-a-twin", "G11", "processor/session.go",
		"Two processes that start for the first time at once: one refuses what the other has made.",
		`	if there, err := p.hasLog(ctx, js); err != nil || there {`,
		`	if there, err := p.hasLog(ctx, js); err != nil && there {`},
	{"lost-configuration-unseen", "G7", "processor/internal/shard/examine.go",
		"A takeover does not see that configurations are lost, where no document is stored.",
		`	if len(s.Collections) == 0 {
`,
		`	if len(s.Collections) < 0 {
`},
	{"cleared-before-the-check", "G7 S8", "processor/internal/shard/verdict.go",
		"A damaged shard is cleared although the log does not reach back to rebuild it.",
		`return f.State.Version != "" && f.Damage == nil && !f.former() }`,
		`return f.State.Version != "" && !f.former() }`},
	{"stamp-at-the-offset-not-compared", "G7 S8", "processor/internal/shard/verdict.go",
		"A log is accepted that lost its end since the checkpoint, and was written again.",
		`	if !f.former() {
		seen =`,
		`	if false {
		seen =`},
	{"end-of-the-checkpoint-not-compared", "G12", "processor/internal/shard/verdict.go",
		"A log is accepted that ends before the checkpoint.",
		`	case r == nil && f.Checkpoint.Seq > last:`,
		`	case r == nil && f.Checkpoint.Seq > last && f.former():`},
	{"place-in-redis-not-compared", "G12 E4", "processor/internal/shard/verdict_events.go",
		"Events are lost that only Redis remembers, and are not published again.",
		`t.Lost = keep(&t.Output, f.State.Offset < c.GivenUp)`,
		`t.Lost = keep(&events.Place{}, false)`},
	{"place-in-the-checkpoint-not-compared", "G12 E4", "processor/internal/shard/verdict_events.go",
		"Events are lost that only the checkpoint remembers, and are not published again.",
		`lost := keep(&c.Last, false)`,
		`lost := keep(&events.Place{}, false)`},
	{"place-in-the-snapshot-not-compared", "G12 E4", "processor/internal/shard/verdict_events.go",
		"A snapshot is loaded from which lost events do not follow.",
		`t.Missed = keep(&m.Last, before)`,
		`t.Missed = keep(&events.Place{}, before)`},
	{"beginning-of-the-tail-not-compared", "G12 E5", "processor/internal/shard/verdict_events.go",
		"The tail begins at a place that the stream has lost: what it stores there now counts as not published.",
		`	if c.From.Seq == 0 || f.Holds[c.From] {`,
		`	if c.From.Seq == 0 || f.Holds[c.From] || c.Seq > 0 {`},
	{"lost-message-named-by-an-output", "G12 E6", "processor/internal/shard/examine.go",
		"The log has lost messages that only an event or a rejection names.",
		`	if len(all) == 0 {
		return nil, nil`,
		`	if len(all) >= 0 {
		return nil, nil`},
	{"only-the-last-output-compared", "G12 E6", "processor/internal/shard/verdict_events.go",
		"The last output names a message that is there, and hides others that name lost ones.",
		`i -= every`,
		`i -= len(all) + every`},
	{"stamp-of-an-output-not-compared", "G12 E6", "processor/internal/shard/verdict_events.go",
		"The log has lost a message that only an output names, and has another one in its place.",
		`case has.found && (has.at`,
		`case has.found && n.At == 0 && (has.at`},
	{"offset-of-a-step-not-named", "G12 E6", "processor/internal/shard/publish.go",
		"The log has lost the configuration from which an event follows, and only the event remembers it.",
		`	if from.Seq != 0 {`,
		`	if from.Seq != 0 && len(messages) == 0 {`},
	{"checkpoint-of-lost-events-stays", "G12 E4", "processor/internal/shard/takeover.go",
		"Events were lost, and a crash while they are published again leaves the checkpoint that says they are there.",
		`	if len(v.Lost) > 0 {
		// Before`,
		`	if len(v.Lost) > 0 && upTo == 0 {
		// Before`},
	{"reconnected-without-comparison", "G12", "processor/session.go",
		"A server that comes back is not asked whether it has lost something.",
		`			s.takeOverAgain("the connection to NATS was lost")`,
		`			continue`},
	{"empty-shard-lacks-nothing", "G7", "processor/internal/shard/verdict.go",
		"After Redis was emptied, readers get 404 for documents that are being rebuilt.",
		`	if v.State.Version == "" {
		return last
	}
`, ``},

	// shard: snapshots; snapshot, retention
	{"removal-not-recorded", "R1", "processor/internal/shard/recording.go",
		"What was removed while a snapshot was taken comes back with it.",
		`			r.writer.Add(e)
		}`,
		`			if ch.New != nil {
				r.writer.Add(e)
			}
		}`},
	{"new-header-not-recorded", "R1", "processor/internal/shard/recording.go",
		"A document that was touched while a snapshot was taken has its old deadline again.",
		`				e.Kind, e.Value = snapshot.Renew, ch.New.Append(nil)`,
		`				continue`},
	{"drop-not-recorded", "R1", "processor/internal/shard/recording.go",
		"A collection that was dropped while a snapshot was taken comes back with it.",
		`			r.writer.Add(snapshot.Entry{Kind: snapshot.Drop, Collection: c.Collection})
`, ``},
	{"renamed-collection-not-scanned", "R3", "processor/internal/shard/recording.go",
		"A snapshot lacks documents of a collection that was dropped before they were scanned, and that are due.",
		`			r.left = append(r.left, to)
`, `			_ = to
`},
	{"old-configuration-recorded", "R1", "processor/internal/shard/recording.go",
		"A snapshot has the configurations of its beginning.",
		`			r.configs[c.Collection] = c.Config.Encode()
		}
	}
	for`,
		`			_ = c
		}
	}
	for`},
	{"truncated-behind-the-newest", "T1", "processor/internal/retention/truncate.go",
		"The log does not reach back to the older snapshot, and the newest one is damaged.",
		`k.synced.offset = k.generations[snapshot.Kept-1].Offset`,
		`k.synced.offset = k.generations[0].Offset`},
	{"truncated-unpublished", "T1", "processor/internal/retention/truncate.go",
		"The log is truncated where outputs may still have to be published.",
		`c.Seq >= upTo && k.Status.Applied.Load() >= upTo, nil`,
		`c.Log != "none", nil`},
	{"truncated-behind-what-is-not-on-disk", "T4", "processor/internal/retention/truncate.go",
		"A snapshot counts as on disk as soon as NATS has acknowledged it.",
		`time.Since(k.synced.known) >= k.Sync`,
		`time.Since(k.synced.known) >= 0`},
	{"loading-looks-whole", "G7", "processor/internal/shard/snapshot.go",
		"Readers get 404 for documents that a snapshot is about to bring.",
		`p.Store.Clear(ctx, version, next, store.Clearing)`,
		`p.Store.Clear(ctx, version, next, 0)`},
	{"loaded-looks-whole", "G7", "processor/internal/shard/snapshot.go",
		"Readers get what a snapshot has, although the log has later versions.",
		`t.loader.End(ctx, p.progress.Claimed(), p.progress.Rebuild())`,
		`t.loader.End(ctx, p.progress.Claimed(), 0)`},
	{"former-owner-records", "O1", "processor/internal/snapshot/record.go",
		"A former owner records its snapshot, although another owner has begun one.",
		`	revision, err := s.records.Update(ctx, RecordKey(s.shard), value, r.revision)`,
		`	_, now, err := s.records.Value(ctx, RecordKey(s.shard))
	if err != nil {
		return err
	}
	revision, err := s.records.Update(ctx, RecordKey(s.shard), value, now)`},
	{"waits-for-an-object", "G1", "processor/internal/snapshot/writer.go",
		"The answer to a request for a part of a snapshot is lost, and the owner waits for it.",
		`context.WithTimeout(ctx, attemptTimeout)`,
		`context.WithTimeout(ctx, attempts*time.Hour)`},
	{"snapshot-published-more", "G3", "processor/internal/shard/verdict_events.go",
		"After a load, outputs up to the end of the snapshot count as published.",
		`m.Published > c.Seq {
		c.Log, c.Seq, c.Watermark, c.From`,
		`m.Offset > c.Seq {
		m.Published, m.PublishedTime = m.Offset, m.Watermark
		c.Log, c.Seq, c.Watermark, c.From`},

	// sink/events, ttlrules
	{"rest-of-a-batch-forgotten", "G3 S3", "sink/events/fast.go",
		"What follows a message that is too large for the stream is never published.",
		`		messages = messages[stored:]
`,
		`		messages = messages[stored:min(len(messages), stored+1)]
`},
	{"lagging-replica-believed", "G3 N2", "sink/events/get.go",
		"What a replica does not have yet counts as not stored, and is published again.",
		`			if state.LastSeq >= upTo && (next == nil || next.Seq > upTo) {`,
		`			if state.LastSeq >= upTo || next == nil {`},
	{"last-one-published-again", "G3 N2", "sink/events/tail.go",
		"The last message of a read counts as not stored.",
		`t.publisher.read(ctx, end, upTo, t.add)`,
		`t.publisher.read(ctx, end, upTo-1, t.add)`},
	{"tail-given-up-early", "G3 N2", "processor/internal/shard/publish.go",
		"What a former owner has published is forgotten before the log is applied up to the takeover.",
		`	if c.From = a.checkpoint.From; a.passed(c.Seq, c.Watermark) {`,
		`	if c.From = a.checkpoint.From; a.passed(c.Seq, c.Watermark) || a.last.Seq > 0 {`},
	{"tail-begins-late", "G3 N2", "processor/internal/shard/publish.go",
		"A checkpoint says that the outputs behind it begin where the stream ends, before a former owner's are passed.",
		`	c.Last = a.last
`,
		`	c.From, c.Last = a.channel.Publisher.Last(), a.last
`},
	{"no-fence-on-replicas", "G3 S5", "sink/events/fence.go",
		"A late publication of a former owner is stored on replicas.",
		`	f.made = time.Now()`,
		`	if f.made = time.Now(); p.replicated.Load() {
		f.seq = nil
	}`},
	{"cut-off-by-a-millisecond", "G3 G5", "ttlrules/history.go",
		"What expires at the very instant of a new default is not found in the index.",
		`		until := min(h.end(i), now)`,
		`		until := min(h.end(i)-1, now)`},
}, slices.Concat(targetTeeth, changeTeeth, regionTeeth, indexTeeth)...)
