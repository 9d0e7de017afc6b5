package shard

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/seed18712806/lapse/processor/internal/crash"
	"github.com/seed18712806/lapse/processor/internal/fold"
	"github.com/seed18712806/lapse/sink/store"
	"github.com/seed18712806/lapse/ttlrules"
)

// TestG4_ConfigurationsInTheOrderOfTheirStream: of the stream of configurations a message counts only if it comes
// next. Another one is passed over, and nothing is committed for it.
//
// It fails if a log that has lost a configuration applies the next one.
func TestG4_ConfigurationsInTheOrderOfTheirStream(t *testing.T) {
	r := newRig(t)
	r.idle()
	r.passTime(start)
	r.idle()
	for _, step := range []struct {
		source, configured uint64
		applies            bool
	}{{2, 0, false}, {1, 1, true}, {1, 1, false}, {3, 1, false}, {2, 2, true}} {
		name := fmt.Sprint("c", len(r.sent))
		m := r.send(start, prefix.Config(name), `{"defaultTtl":1}`)
		m.Source = step.source
		r.passed = nil
		r.idle()
		if there := r.Collections().Collection(name) != nil; there != step.applies ||
			r.progress.Configured != step.configured || r.Status.Configured.Load() != step.configured {
			t.Errorf("message %d of the stream of configurations is applied: %t, and all up to %d", step.source, there,
				r.progress.Configured)
		}
		if commits := r.calls("commit"); (commits > 0) != step.applies || r.progress.Offset != m.Seq ||
			r.Status.Applied.Load() != m.Seq {
			t.Errorf("message %d: %d commits, applied up to %d", step.source, commits, r.progress.Offset)
		}
	}
}

// TestG5_ManyConfigurations: a collection has MaxEpochs epochs at most while none of its documents is due. More are
// kept while one is: it was expired by one of them, and has its event.
func TestG5_ManyConfigurations(t *testing.T) {
	for _, due := range []bool{false, true} {
		t.Run(fmt.Sprint("due: ", due), func(t *testing.T) {
			r := newRig(t)
			r.idle()
			ttlOf1(r)
			r.write(start, "a", `{}`)
			r.idle()
			from, most := int64(start), 0
			if due {
				from += 1000
			}
			r.at[crash.AfterControl] = func() { most = max(most, len(r.Collections().Config("c").History)) }
			for i := range fold.MaxEpochs + 5 {
				r.send(from, prefix.Config("c"), fmt.Sprintf(`{"defaultTtl":%d}`, 2+i%2))
				r.handOut()
				r.duties.settled = time.Now() // it does not settle meanwhile
				if err := r.control(t.Context(), r.pending[0]); err != nil {
					t.Fatal(err)
				}
			}
			if want := map[bool]int{false: fold.MaxEpochs, true: fold.MaxEpochs + 6}[due]; most != want {
				t.Errorf("the collection had %d epochs, want %d", most, want)
			}
			r.passTime(from + 5000)
			r.idle()
			same(t, "events", r.expired(), []string{"a"})
			if n := len(r.Collections().Config("c").History); n != 1 {
				t.Errorf("%d epochs are left", n)
			}
		})
	}
}

// TestG9_WhatMustWait: at the bounds a configuration or a drop waits for documents that are due, and not before.
func TestG9_WhatMustWait(t *testing.T) {
	history := func(epochs int) (h ttlrules.History) {
		for i := range epochs {
			h = append(h, ttlrules.Epoch{Since: int64(i)})
		}
		return h
	}
	for _, tt := range []struct {
		kind                fold.Kind
		epochs, generations int
		due, waits          bool
	}{
		{fold.Configure, 3, 0, true, false}, {fold.Configure, 4, 0, true, true},
		{fold.Drop, 4, 1, true, false}, {fold.Drop, 4, 2, true, true}, {fold.Drop, 4, 2, false, false},
	} {
		p := &Owner{Parts: Parts{Bounds: Bounds{Epochs: 3, Generations: 2}}, collections: fold.NewCollections(nil, nil)}
		for i := range tt.generations {
			p.collections.Make(fold.GenerationName("c", uint64(i)))
		}
		if got := p.mustWait(&fold.Message{Kind: tt.kind, Collection: "c"}, store.Config{History: history(tt.epochs)},
			tt.due); got != tt.waits {
			t.Errorf("%+v: it waits: %t", tt, got)
		}
	}
}

// TestG3_AConfigurationWaits: a configuration that would make too many epochs waits until the documents that are
// due have their events. Log time goes on meanwhile, and the log counts as applied up to before the configuration.
func TestG3_AConfigurationWaits(t *testing.T) {
	r := newRig(t)
	r.idle()
	ttlOf1(r)
	const documents = ReapChunk + 2*leastRoom
	for i := range documents {
		r.write(start, fmt.Sprint(i), `{}`)
	}
	r.idle()
	r.Bounds.Epochs = 2
	before := r.send(start+2000, prefix.Config("c"), `{"defaultTtl":2}`)
	next := r.send(start+2001, prefix.Config("c"), `{"defaultTtl":3}`)
	drained := 0
	r.at[crash.AfterDrain] = func() {
		drained++
		if r.progress.Offset != before.Seq || next.Seq != before.Seq+1 || r.progress.Watermark != start+2001 ||
			r.statusOf(next) != 0 {
			t.Errorf("it waits at %d, %d, and its status is %d", r.progress.Offset, r.progress.Watermark-start,
				r.statusOf(next))
		}
	}
	r.idle()
	if n := len(r.expired()); n != documents || drained == 0 || r.statusOf(next) != 200 ||
		r.Collections().Config("c").Etag != next.Seq {
		t.Errorf("it has waited %d times, has the status %d, and there are %d events", drained, r.statusOf(next), n)
	}
}

// TestG1_OneShardAnswers: all shards apply a configuration. The first one answers, rejects, and counts.
func TestG1_OneShardAnswers(t *testing.T) {
	for _, number := range []int{0, 1} {
		r := newRig(t)
		r.number = number
		r.restart()
		r.idle()
		m := r.send(start, prefix.Config("c"), `{"defaultTtl":1}`)
		bad := r.send(start, prefix.Config("c"), `{"indexingMode":"none"}`)
		created := r.write(start, "a", `{}`)
		r.idle()
		answers := 1 - number
		got := []int{r.statusOf(m), r.statusOf(bad), r.statusOf(created), r.rejected(),
			int(value(t, r.Metrics.Applied)), int(value(t, r.Metrics.Rejected))}
		if want := []int{200 * answers, 400 * answers, 201, answers, 1 + answers, answers}; !slices.Equal(got, want) {
			t.Errorf("shard %d: statuses and counts %v, want %v", number, got, want)
		}
	}
}
