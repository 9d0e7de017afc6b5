package streams

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/seed18712806/lapse/sink/wire"
)

// gapsKey is the key of the gaps of a stream that are no loss. Without those of a log lapse goes on because a person has
// decided so; those of the stream of events are where lapse has removed a filling. They are in the metadata of the
// stream, because each rebuild meets them, and each region that mirrors it.
const gapsKey = "lapse-gaps"

// mostGaps bounds the metadata, of which the server accepts 128 KiB.
const mostGaps = 1000

// Gap is a run of sequences in the middle of a log that have no message.
type Gap struct {
	First uint64 `json:"first"`
	Last  uint64 `json:"last"`
}

// noted are the gaps that are noted in the metadata.
func noted(c jetstream.StreamConfig) (gaps []Gap, err error) {
	if text := c.Metadata[gapsKey]; text != "" {
		if err := json.Unmarshal([]byte(text), &gaps); err != nil {
			return nil, mismatch(c.Name, "its metadata has no valid %s", gapsKey)
		}
	}
	return gaps, nil
}

// known are the gaps of a log that are no loss: those that are noted, and the one that a restore has left.
func known(c jetstream.StreamConfig) ([]Gap, error) {
	gaps, err := noted(c)
	if r, ok, _ := wire.ParseRestored(c.Metadata); ok {
		gaps = append(gaps, Gap{r.End + 1, r.Next - 1})
	}
	return gaps, err
}

// Knows reports whether all sequences of a gap are missing by a restore, or by a decision.
func Knows(info *jetstream.StreamInfo, gap Gap) (bool, error) {
	all, err := known(info.Config)
	return slices.ContainsFunc(all, func(k Gap) bool { return k.First <= gap.First && gap.Last <= k.Last }), err
}

// Gaps are the gaps of the log that are not known, in order. It asks the server to list them only where info,
// which the caller has just got, counts more missing messages than are known.
func (s *Streams) Gaps(ctx context.Context, info *jetstream.StreamInfo) ([]Gap, error) {
	all, err := known(info.Config)
	if err != nil {
		return nil, err
	}
	missing := info.State.NumDeleted
	for _, k := range all {
		if first, last := max(k.First, info.State.FirstSeq), min(k.Last, info.State.LastSeq); first <= last {
			missing -= int(last - first + 1)
		}
	}
	if missing == 0 {
		return nil, nil
	}
	return listGaps(ctx, s.Log, all)
}

// listGaps lists the gaps of a stream but for those that are known.
func listGaps(ctx context.Context, stream jetstream.Stream, all []Gap) (gaps []Gap, err error) {
	info, err := stream.Info(ctx, jetstream.WithDeletedDetails(true))
	if err != nil {
		return nil, err
	}
	slices.Sort(info.State.Deleted)
	for _, seq := range info.State.Deleted {
		n := len(gaps)
		switch {
		case slices.ContainsFunc(all, func(k Gap) bool { return k.First <= seq && seq <= k.Last }):
		case n > 0 && gaps[n-1].Last == seq-1:
			gaps[n-1].Last = seq
		default:
			gaps = append(gaps, Gap{seq, seq})
		}
	}
	return gaps, nil
}

// NoteGaps notes gaps without which lapse goes on.
func (s *Streams) NoteGaps(ctx context.Context, gaps []Gap) error {
	js, err := jetstream.New(s.nc)
	if err != nil {
		return err
	}
	info, err := s.Log.Info(ctx)
	if err != nil {
		return err
	}
	change := info.Config
	if err := note(&change, gaps, info.State.FirstSeq); err != nil {
		return err
	}
	_, err = js.UpdateStream(ctx, change)
	if err == nil {
		_, err = s.Log.Info(ctx) // the next change of the metadata begins with what is cached
	}
	return err
}

// note adds gaps to those that are noted in a configuration, and leaves out those before the first message.
func note(c *jetstream.StreamConfig, gaps []Gap, first uint64) error {
	all, err := noted(*c)
	if err != nil {
		return err
	}
	return setNoted(c, append(all, gaps...), first)
}

// setNoted notes gaps in a configuration, and leaves out those before the first message.
func setNoted(c *jetstream.StreamConfig, all []Gap, first uint64) error {
	all = slices.DeleteFunc(all, func(g Gap) bool { return g.Last < first })
	slices.SortFunc(all, func(a, b Gap) int { return cmp.Compare(a.First, b.First) })
	for near := uint64(1); len(all) > mostGaps; near *= 2 {
		all = joined(all, near)
	}
	text, err := json.Marshal(all)
	if err != nil {
		return err
	}
	c.Metadata = maps.Clone(c.Metadata)
	c.Metadata[gapsKey] = string(text)
	return nil
}

// joined joins gaps that are near to each other. Then messages between them count as known to be missing too.
func joined(gaps []Gap, near uint64) (fewer []Gap) {
	for _, g := range gaps {
		if n := len(fewer); n > 0 && g.First <= fewer[n-1].Last+near {
			fewer[n-1].Last = max(fewer[n-1].Last, g.Last)
		} else {
			fewer = append(fewer, g)
		}
	}
	return fewer
}

// Text is how a person reads gaps: the first ones, and how many there are.
func Text(gaps []Gap) string {
	const shown = 5
	text, missing := "", uint64(0)
	for i, g := range gaps {
		missing += g.Last - g.First + 1
		switch {
		case i >= shown:
		case g.First == g.Last:
			text += fmt.Sprintf(", %d", g.First)
		default:
			text += fmt.Sprintf(", %d to %d", g.First, g.Last)
		}
	}
	text = text[min(2, len(text)):]
	if n := len(gaps); n > shown {
		text += fmt.Sprintf(" and so on in %d places, the last of them at %d", n, gaps[n-1].Last)
	}
	return fmt.Sprintf("%d messages are missing (sequences %s)", missing, text)
}
