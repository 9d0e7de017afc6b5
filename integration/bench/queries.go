package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/seed18712806/lapse/integration/bench/internal/load"
	"github.com/seed18712806/lapse/integration/bench/internal/rig"
	"github.com/seed18712806/lapse/integration/bench/internal/table"
	"github.com/seed18712806/lapse/sink"
	"github.com/seed18712806/lapse/sink/entries"
	"github.com/seed18712806/lapse/sink/wire"
)

const (
	group     = 100 // documents
	groupAt   = "/group"
	timedEach = 1000 // pages, and queries
)

// queries measures what an index costs, and queries by it.
func (b *bench) queries(ctx context.Context, round int) ([]table.Figure, error) {
	var with, without ingested
	var q queried
	err := inTurn(round,
		func() (err error) { with, err = b.ingestGroups(ctx, round, groupAt); return err },
		func() (err error) { without, err = b.ingestGroups(ctx, round, ""); return err },
	)
	if err == nil {
		q, err = b.query(ctx)
	}
	return []table.Figure{
		table.HigherBetter(table.Figure{
			What: "documents a second, in a fast batch, with an index", Unit: "/s", Lapse: with.rate, Against: "lapse without an index", Other: without.rate,
			Goal: table.Goal{Must: 0.85, Ratio: true},
		}),
		table.LowerBetter(table.Figure{
			What: "CPU of lapse and its servers for such a document", Unit: "µs", Lapse: with.cpu, Against: "lapse without an index", Other: without.cpu,
		}),
		{What: "memory of Redis for a document in an index", Unit: "B", Lapse: with.memory - without.memory},
		table.HigherBetter(table.Figure{
			What: fmt.Sprintf("a query for %d documents, p50", group), Unit: "ms", Lapse: ms(q.query), Against: "a page of the list by deadline", Other: ms(q.page),
			Goal: table.Goal{Must: 2, Ratio: true, AtMost: true},
		}),
		{What: "documents a second into an index that is declared later", Unit: "/s", Lapse: q.made},
	}, err
}

// groups makes about n documents, in whole groups.
func (b *bench) groups(n int) load.Load {
	ld := b.load(n/group*group, load.LongTTL)
	ld.Groups = n / group
	return ld
}

// ingested is what the ingest of documents in groups has shown.
type ingested struct {
	rate   float64 // documents a second
	cpu    float64 // µs of lapse and its servers for each
	memory float64 // bytes of Redis for each
}

// ingestGroups ingests documents in groups, with an index of a pointer, or without one.
func (b *bench) ingestGroups(ctx context.Context, round int, pointer string) (got ingested, err error) {
	l, err := b.rig.StartLapse(ctx, 0)
	if err != nil {
		return got, err
	}
	defer l.Stop()
	for _, collection := range []string{rig.Warm, rig.Orders} {
		err = l.Configure(ctx, collection, -1)
		if pointer != "" {
			err = l.ConfigureIndex(ctx, collection, -1, pointer)
		}
		if err != nil {
			return got, err
		}
	}
	before, err := l.Redis.UsedMemory(ctx)
	if err != nil {
		return got, err
	}
	ld := b.groups(b.n)
	if got.rate, err = b.ingestInto(ctx, round, l, ld, load.PublishBatch); err != nil {
		return got, err
	}
	got.cpu = b.cpuOf(ld.N, b.cpu...)
	if pointer != "" {
		if err := verifyGroup(ctx, l, ld, 0); err != nil {
			return got, err
		}
	}
	l.Process.Stop() // so that the buffers of its connections do not count
	after, err := l.Redis.UsedMemory(ctx)
	got.memory = (after - before) / float64(ld.N+ld.Warm().N)
	return got, err
}

// queried is what queries have shown.
type queried struct {
	query, page time.Duration // p50
	made        float64       // documents a second
}

// query times queries by an index that is declared once the documents are there, and pages by deadline.
func (b *bench) query(ctx context.Context) (got queried, err error) {
	l, err := b.rig.StartLapse(ctx, 0)
	if err != nil {
		return got, err
	}
	defer l.Stop()
	ld := b.groups(b.n / 3 * 10)
	if err := l.Configure(ctx, rig.Orders, -1); err != nil {
		return got, err
	}
	if err := l.Fill(ctx, rig.Orders, ld); err != nil {
		return got, err
	}
	began := time.Now()
	if err := l.ConfigureIndex(ctx, rig.Orders, -1, groupAt); err != nil {
		return got, err
	}
	if err := indexMade(ctx, l, ld); err != nil {
		return got, err
	}
	got.made = float64(ld.N) / time.Since(began).Seconds()
	var pages, queries []time.Duration
	r, list := rand.New(rand.NewPCG(seed, 0)), sink.ListOptions{Order: wire.ByDeadline, Limit: group}
	for range min(timedEach, ld.N/group) {
		at := time.Now()
		page, err := l.Reader.List(ctx, rig.Orders, list)
		if pages = append(pages, time.Since(at)); err != nil || len(page.Documents) != group {
			return got, fmt.Errorf("a page by deadline has %d documents (%w)", len(page.Documents), err)
		}
		list.Continuation = page.Continuation
		i := r.IntN(ld.Groups)
		at = time.Now()
		err = verifyGroup(ctx, l, ld, i)
		if queries = append(queries, time.Since(at)); err != nil {
			return got, err
		}
	}
	slices.Sort(pages)
	slices.Sort(queries)
	got.page, got.query = load.Quantile(pages, 0.5), load.Quantile(queries, 0.5)
	b.note("%d documents: a query for %d p50 %.2f ms p99 %.2f ms; a page by deadline p50 %.2f ms p99 %.2f ms", ld.N, group,
		ms(got.query), ms(load.Quantile(queries, 0.99)), ms(got.page), ms(load.Quantile(pages, 0.99)))
	return got, nil
}

// indexMade waits until the index of the groups serves queries.
func indexMade(ctx context.Context, l *rig.Lapse, ld load.Load) error {
	for {
		err := verifyGroup(ctx, l, ld, 0)
		if !errors.Is(err, sink.ErrUnavailable) {
			return err
		}
		if err := load.Sleep(ctx, 20*time.Millisecond); err != nil {
			return err
		}
	}
}

// verifyGroup queries for the documents of a group, and counts them.
func verifyGroup(ctx context.Context, l *rig.Lapse, ld load.Load, i int) error {
	value := entries.Value{Kind: entries.String, Text: ld.Group(i)}
	where := []entries.Condition{{Pointer: groupAt, In: []entries.Value{value}}}
	page, err := l.Reader.Query(ctx, rig.Orders, sink.QueryOptions{Limit: group + 1, Where: where})
	if err == nil && len(page.Documents) != group {
		err = fmt.Errorf("a query for group %s returns %d of %d documents", ld.Group(i), len(page.Documents), group)
	}
	return err
}
