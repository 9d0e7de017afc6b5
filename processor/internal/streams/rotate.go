package streams

import (
	"context"
	"fmt"
	"math"
	"slices"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/seed18712806/lapse/sink/wire"
)

// The server stores messages in files of up to blockBytes. What it removes of a file stays there until
// all of the file is removed, or half of it, if that is much. In a stream of few messages that is
// never. So lapse appends a file's worth of nothing (a filling): what comes after it is in another file
// than what came before, which then goes as a whole.
const (
	blockBytes   = 8 << 20
	fillingBytes = blockBytes + blockBytes/16
	fillingPiece = 256 << 10
)

// Filling is where a filling may be appended to a stream.
type Filling struct {
	stream  jetstream.Stream
	bucket  string // of the checkpoints
	subject string
	keep    bool // the messages stay in the stream, as ticks do: nobody deletes from the middle of the log
	noted   bool // the metadata of the stream says which messages were removed
}

// LogFilling is that of the log. Its messages are ticks.
func (s *Streams) LogFilling(log wire.Log) Filling {
	return Filling{stream: s.Log, subject: log.Tick(), keep: true}
}

// Fits reports whether a filling takes the place of no messages, by what is known of the stream.
func (f Filling) Fits(info *jetstream.StreamInfo) bool {
	limit := info.Config.MaxBytes
	return !f.keep || limit <= 0 || info.State.Bytes+fillingBytes <= uint64(limit)
}

// Turned reports whether a stream has stored a file's worth since the message with a sequence, which is gone.
func Turned(info *jetstream.StreamInfo, seq uint64) bool {
	return info.State.FirstSeq > seq && info.State.Bytes >= fillingBytes
}

// EventsFilling is that of the stream of events. If that is mirrored, its messages stay until they age out: a mirror
// may not get what is removed at once, and its file would not end.
func (s *Streams) EventsFilling(p wire.Prefix, mirrored bool) Filling {
	return Filling{stream: s.Events, bucket: s.Checkpoints.Bucket(), subject: p.Filling(), keep: mirrored, noted: true}
}

// ObjectsFilling is that of the snapshots.
func (s *Streams) ObjectsFilling() Filling {
	return Filling{stream: s.Snapshots.stream, subject: s.Snapshots.pieces("filling")}
}

// Fill appends a filling. It returns the sequence of its last message. js publishes it.
func (f Filling) Fill(ctx context.Context, js jetstream.JetStream) (last uint64, err error) {
	if f.keep {
		return f.fill(ctx, js)
	}
	if !f.noted {
		// A message that was stored and not removed, as the server or a process has died, would stay the first of the
		// stream. Nothing behind it would ever count as gone.
		if err := f.stream.Purge(ctx, jetstream.WithPurgeSubject(f.subject)); err != nil {
			return 0, fmt.Errorf("remove a former filling of stream %s: %w", f.stream.CachedInfo().Config.Name, err)
		}
		return f.fill(ctx, js)
	}
	info, err := f.stream.Info(ctx)
	if err != nil {
		return 0, err
	}
	first := info.State.LastSeq + 1
	if err := f.note(ctx, js, Gap{first, endless}); err != nil {
		return 0, err
	}
	if last, err = f.fill(ctx, js); err != nil {
		return 0, err
	}
	return last, f.note(ctx, js, Gap{first, last})
}

// endless is the end of a gap whose filling has not ended.
const endless = math.MaxUint64

// note notes in the metadata of the stream which messages are missing by a filling. One that was interrupted has ended.
func (f Filling) note(ctx context.Context, js jetstream.JetStream, gap Gap) error {
	return changeNoted(ctx, js, f.bucket, f.stream, func(gaps []Gap, last uint64) []Gap {
		for i, g := range gaps {
			if g.Last == endless {
				gaps[i].Last = last
			}
		}
		gaps = slices.DeleteFunc(gaps, func(g Gap) bool { return g.First == gap.First || g.Last < g.First })
		if gap.First > 0 {
			gaps = append(gaps, gap)
		}
		return gaps
	})
}

// fill publishes the messages of a filling.
func (f Filling) fill(ctx context.Context, js jetstream.JetStream) (last uint64, err error) {
	piece := make([]byte, min(fillingPiece, int(js.Conn().MaxPayload())/2))
	for filled := 0; filled < fillingBytes; filled += len(piece) {
		ack, err := js.Publish(ctx, f.subject, piece)
		if err != nil {
			return 0, fmt.Errorf("fill stream %s: %w", f.stream.CachedInfo().Config.Name, err)
		}
		last = ack.Sequence
		if f.keep {
			continue
		}
		if err := f.stream.DeleteMsg(ctx, last); err != nil {
			return 0, fmt.Errorf("remove a filling of stream %s: %w", f.stream.CachedInfo().Config.Name, err)
		}
	}
	return last, nil
}
