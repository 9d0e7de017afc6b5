package streams

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/seed18712806/lapse/sink/events"
	"github.com/seed18712806/lapse/sink/wire"
)

// largestPiece is the size of the messages of an object.
const largestPiece = 256 << 10

// Objects is the object store of the snapshots. Its layout is that of nats.go, so the tools of NATS
// read it, and Objects differs from nats.go's own in three things: the leader of the stream answers
// all questions; the subject of an object's pieces is its name, so that a part of an object that was
// not finished is found; and nothing is left of an object that was removed.
type Objects struct {
	js     jetstream.JetStream
	bucket string
	stream jetstream.Stream
	piece  int
}

// objectSubjects are the subjects of the object store.
func objectSubjects(p wire.Prefix) []string {
	bucket := p.SnapshotBucket()
	return []string{"$O." + bucket + ".C.>", "$O." + bucket + ".M.>"}
}

// provisionObjects creates the object store if it is absent.
func provisionObjects(ctx context.Context, js jetstream.JetStream, o Options) (*Objects, error) {
	bucket := o.Prefix.SnapshotBucket()
	_, err := js.ObjectStore(ctx, bucket)
	if errors.Is(err, jetstream.ErrBucketNotFound) || errors.Is(err, jetstream.ErrStreamNotFound) {
		if o.Existing {
			return nil, gone(o.Prefix.SnapshotStream())
		}
		_, err = js.CreateObjectStore(ctx, jetstream.ObjectStoreConfig{
			Bucket: bucket, Description: "lapse: snapshots of the shards", Replicas: max(o.Replicas, 1),
			Metadata: map[string]string{wire.FormatKey: wire.FormatText},
		})
		if errors.Is(err, jetstream.ErrBucketExists) { // another process has just created it
			err = nil
		}
	}
	if err != nil {
		return nil, fmt.Errorf("provision object store %s: %w", bucket, err)
	}
	return openObjects(ctx, js, o)
}

// openObjects opens the object store, which is there.
func openObjects(ctx context.Context, js jetstream.JetStream, o Options) (*Objects, error) {
	bucket := o.Prefix.SnapshotBucket()
	stream, err := js.Stream(ctx, o.Prefix.SnapshotStream())
	if err != nil {
		return nil, fmt.Errorf("look up object store %s: %w", bucket, err)
	}
	return &Objects{js: js, bucket: bucket, stream: stream, piece: min(largestPiece, int(o.MaxPayload)/2)}, nil
}

// pieces is the subject of an object's pieces. A name is tokens, divided by dots.
func (b *Objects) pieces(name string) string { return "$O." + b.bucket + ".C." + name }

// meta is the subject of what is known of an object.
func (b *Objects) meta(name string) string {
	return "$O." + b.bucket + ".M." + base64.URLEncoding.EncodeToString([]byte(name))
}

// Stream is the stream of the store.
func (b *Objects) Stream() jetstream.Stream { return b.stream }

// Put stores an object, in place of one that is there. If it fails there may be a part of it.
func (b *Objects) Put(ctx context.Context, name string, data []byte) error {
	if err := b.purge(ctx, b.pieces(name)); err != nil {
		return err
	}
	sum := sha256.Sum256(data)
	info := jetstream.ObjectInfo{
		ObjectMeta: jetstream.ObjectMeta{Name: name, Opts: &jetstream.ObjectMetaOptions{ChunkSize: uint32(b.piece)}},
		Bucket:     b.bucket, NUID: name, Size: uint64(len(data)),
		Digest: "SHA-256=" + base64.URLEncoding.EncodeToString(sum[:]), ModTime: time.Now().UTC(),
	}
	for len(data) > 0 {
		n := min(len(data), b.piece)
		if _, err := b.js.Publish(ctx, b.pieces(name), data[:n]); err != nil {
			return err
		}
		data = data[n:]
		info.Chunks++
	}
	meta := nats.NewMsg(b.meta(name))
	meta.Header.Set(jetstream.MsgRollup, jetstream.MsgRollupSubject)
	var err error
	if meta.Data, err = json.Marshal(info); err != nil {
		return err
	}
	_, err = b.js.PublishMsg(ctx, meta)
	return err
}

// Get reads an object: nil if there is none, or only a part of one.
func (b *Objects) Get(ctx context.Context, name string) ([]byte, error) {
	m, err := b.get(ctx, map[string]any{"last_by_subj": b.meta(name)})
	if m == nil || err != nil {
		return nil, err
	}
	var info jetstream.ObjectInfo
	if err := json.Unmarshal(m.Data, &info); err != nil || info.NUID != name {
		return nil, nil
	}
	// A mirror has also the pieces that were stored under the name before: purges do not cross. So those count that
	// are what the object is.
	var pieces [][]byte
	for seq := uint64(0); ; seq++ {
		if n := len(pieces) - int(info.Chunks); n >= 0 {
			data := bytes.Join(pieces[n:], nil)
			if sum := sha256.Sum256(data); info.Digest == "SHA-256="+base64.URLEncoding.EncodeToString(sum[:]) {
				return data, nil
			}
		}
		piece, err := b.get(ctx, map[string]any{"seq": max(seq, 1), "next_by_subj": b.pieces(name)})
		if piece == nil || err != nil || piece.Seq > m.Seq {
			return nil, err
		}
		pieces, seq = append(pieces, piece.Data), piece.Seq
	}
}

func (b *Objects) get(ctx context.Context, request map[string]any) (*events.Stored, error) {
	return events.GetMessage(ctx, b.js.Conn(), b.stream.CachedInfo().Config.Name, request)
}

// Names are the names of all objects, and of those of which there is only a part.
func (b *Objects) Names(ctx context.Context) ([]string, error) { return b.under(ctx, "") }

// under are the names that begin with some tokens, in order. An object that is removed while somebody stores it can
// leave what is known of it without its pieces: that has a name too.
func (b *Objects) under(ctx context.Context, tokens string) (names []string, err error) {
	info, err := b.stream.Info(ctx, jetstream.WithSubjectFilter("$O."+b.bucket+".>"))
	if err != nil {
		return nil, err
	}
	for subject := range info.State.Subjects {
		name, piece := strings.CutPrefix(subject, b.pieces(""))
		if !piece {
			decoded, err := base64.URLEncoding.DecodeString(strings.TrimPrefix(subject, b.meta("")))
			if err != nil {
				continue // somebody else has stored it
			}
			name = string(decoded)
		}
		if strings.HasPrefix(name, tokens) {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return slices.Compact(names), nil
}

// Remove removes all objects whose names begin with some tokens. Until it has ended, each of them has a name.
func (b *Objects) Remove(ctx context.Context, tokens string) error {
	names, err := b.under(ctx, tokens+".")
	if err != nil {
		return err
	}
	for _, name := range names {
		if err := b.purge(ctx, b.meta(name)); err != nil {
			return err
		}
	}
	return b.purge(ctx, b.pieces(tokens+".>"))
}

func (b *Objects) purge(ctx context.Context, subject string) error {
	return b.stream.Purge(ctx, jetstream.WithPurgeSubject(subject))
}

// RemoveFillings removes from a mirror of the snapshots what the first region has stored to end a file, and has
// removed since.
func (s *Streams) RemoveFillings(ctx context.Context) error {
	return s.Snapshots.purge(ctx, s.ObjectsFilling().subject)
}
