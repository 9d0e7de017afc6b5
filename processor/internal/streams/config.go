package streams

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/seed18712806/lapse/sink/wire"
)

const (
	defaultEventsAge = 7 * 24 * time.Hour
	defaultWindow    = 2 * time.Minute // for duplicates
)

// LongestEvents is how long events may be kept at most by a lapse that forgets within a time. The NATS
// server needs the rest of the time to give up their bytes.
func LongestEvents(forgetWithin time.Duration) time.Duration { return forgetWithin / 8 * 7 }

// CheckEvents refuses an age of events that breaks the promise to forget.
func CheckEvents(maxAge *time.Duration, forgetWithin time.Duration) error {
	most := LongestEvents(forgetWithin)
	switch {
	case maxAge == nil || *maxAge > 0 && *maxAge <= most:
		return nil
	case *maxAge <= 0:
		return fmt.Errorf("--events-max-age %s keeps events for ever, and --forget-within %s does not allow that: keep "+
			"events for %s at most, or set --forget-within to a longer time", *maxAge, forgetWithin, most)
	}
	return fmt.Errorf("--events-max-age %s is too long for --forget-within %s: keep events for %s at most (7/8 of it), "+
		"or set --forget-within to a longer time", *maxAge, forgetWithin, most)
}

// logConfig is the configuration of the log. configs is the identity of the stream of
// configurations that the log sources, if there are several shards.
func (o Options) logConfig(configs string) jetstream.StreamConfig {
	c := o.common(jetstream.StreamConfig{
		Name:              o.log().Stream(),
		Description:       "lapse: writes, configuration and ticks, in one order",
		Subjects:          o.log().Subjects(),
		AllowBatchPublish: true,
		DenyDelete:        true, // see gaps.go
		MaxAge:            orDefault(o.LogMaxAge, 0),
		MaxBytes:          orDefault(o.LogMaxBytes, -1),
		Duplicates:        clamp(orDefault(o.DuplicateWindow, defaultWindow), orDefault(o.LogMaxAge, 0)),
		Metadata:          o.fixed(),
	})
	if o.sharded() {
		c.Sources = []*jetstream.StreamSource{{Name: o.Prefix.ConfigStream()}}
		c.Metadata[configsKey] = configs
	}
	return c
}

// configsConfig is the configuration of the stream of configurations, if there are several
// shards. It keeps everything: a log that is rebuilt needs all of it.
func (o Options) configsConfig() jetstream.StreamConfig {
	return o.common(jetstream.StreamConfig{
		Name:        o.Prefix.ConfigStream(),
		Description: "lapse: configurations and drops, for the logs of all shards",
		Subjects:    o.Prefix.ConfigSubjects(),
		DenyDelete:  true,
		MaxBytes:    -1,
		Duplicates:  orDefault(o.DuplicateWindow, defaultWindow),
		Metadata:    o.fixed(),
	})
}

// fixed is what cannot change once the log is created.
func (o Options) fixed() map[string]string {
	return map[string]string{
		wire.FormatKey: wire.FormatText,
		wire.ShardsKey: strconv.Itoa(max(o.Shards, 1)),
		maxBodyKey:     strconv.FormatInt(o.MaxPayload-Reserve, 10),
		maxLevelsKey:   strconv.Itoa(cmp.Or(o.levels, maxLevels)),
	}
}

func (o Options) eventsConfig(log string) jetstream.StreamConfig {
	age := defaultEventsAge
	if o.EventsLongest > 0 {
		age = min(age, o.EventsLongest)
	}
	age = orDefault(o.EventsMaxAge, age)
	from, to := o.Prefix.EventTransform()
	return o.common(jetstream.StreamConfig{
		Name:               o.Prefix.EventsStream(),
		Description:        "lapse: expiry events, warnings and rejections",
		Subjects:           o.Prefix.EventSubjects(),
		SubjectTransform:   &jetstream.SubjectTransformConfig{Source: from, Destination: to},
		AllowAtomicPublish: true,
		AllowBatchPublish:  true,
		MaxAge:             age,
		MaxBytes:           orDefault(o.EventsMaxBytes, eventsBytes[0]),
		Duplicates:         clamp(orDefault(o.DuplicateWindow, defaultWindow), age),
		Metadata:           map[string]string{wire.FormatKey: wire.FormatText, logKey: log},
	})
}

func (o Options) common(c jetstream.StreamConfig) jetstream.StreamConfig {
	c.Storage = jetstream.FileStorage
	c.AllowDirect = true
	c.Replicas = max(o.Replicas, 1)
	c.Retention = jetstream.LimitsPolicy
	c.Discard = jetstream.DiscardOld
	return c
}

// compare refuses a stream that is present and differs from the configuration. Limits may
// differ, and so may anything that does not change what a fold of the log results in.
func compare(have, want jetstream.StreamConfig) error {
	for _, key := range []string{wire.FormatKey, wire.ShardsKey, configsKey, logKey} {
		h, w := have.Metadata[key], want.Metadata[key]
		switch {
		case h == w:
		case h == wire.Restoring:
			return restoring(have.Name)
		case key == wire.ShardsKey && h != "":
			return otherShards(have.Name, "it was created with %s shards, and the options have %s: use the number of the "+
				"stream, or copy the documents to another prefix (lapse export, lapse import)", h, w)
		case key == configsKey && h != "":
			return stranger(have.Name, "its configurations are from another stream, which was deleted or created again: "+
				"restore that one, or begin anew with another prefix")
		case key == logKey && h != "":
			return stranger(have.Name, "its events are from another log, which was deleted or created again: restore that "+
				"log, or remove this stream and the bucket of checkpoints to begin anew")
		case h == "":
			return mismatch(have.Name, "it was not created by lapse (its metadata has no %s)", key)
		default:
			return checkFormat(have.Name, h)
		}
	}
	if _, _, err := wire.ParseRestored(have.Metadata); err != nil {
		return mismatch(have.Name, "%w", err)
	}
	if !slices.Equal(sorted(have.Subjects), sorted(want.Subjects)) {
		return mismatch(have.Name, "its subjects are %v, and must be %v", have.Subjects, want.Subjects)
	}
	if len(want.Sources) != len(have.Sources) || len(want.Sources) == 1 && have.Sources[0].Name != want.Sources[0].Name {
		return mismatch(have.Name, "it must have the sources that lapse gave it, and no others")
	}
	switch {
	case !reflect.DeepEqual(have.SubjectTransform, want.SubjectTransform):
		return mismatch(have.Name, "it changes subjects (subject_transform) in another way than lapse has set")
	case want.AllowAtomicPublish && have.PersistMode == jetstream.AsyncPersistMode:
		return mismatch(have.Name, "its persist_mode is async, and must be default: with async, NATS accepts no atomic "+
			"batches, and may lose what it has acknowledged")
	case want.AllowAtomicPublish && !(have.AllowAtomicPublish && have.AllowBatchPublish):
		return mismatch(have.Name, "it does not accept all batches of messages: set allow_atomic and allow_batched")
	case want.DenyDelete && !have.DenyDelete:
		return mismatch(have.Name, "single messages of it can be deleted: set deny_delete")
	case have.Retention != want.Retention:
		return mismatch(have.Name, "its retention is %s, and must be %s", have.Retention, want.Retention)
	case !have.AllowDirect:
		return mismatch(have.Name, "it does not allow direct access: set allow_direct")
	case have.NoAck:
		return mismatch(have.Name, "it does not acknowledge messages: unset no_ack")
	case have.Sealed:
		return mismatch(have.Name, "it is sealed, and accepts no messages")
	case want.Metadata[logKey] != "" && have.MaxMsgSize > 0 && have.MaxMsgSize < leastMessage:
		return mismatch(have.Name, "it accepts messages of up to %d bytes (max_msg_size), and an event without its "+
			"document may need %d: set it to more, or to -1 for no limit", have.MaxMsgSize, leastMessage)
	case have.MaxMsgsPerSubject > 0:
		return mismatch(have.Name, "it keeps only %d messages per subject (max_msgs_per_subject), and must keep all",
			have.MaxMsgsPerSubject)
	case have.Storage != want.Storage:
		return mismatch(have.Name, "its storage is %s, and must be %s", have.Storage, want.Storage)
	}
	return nil
}

func mismatch(stream, format string, args ...any) error {
	return Refuse(ErrMismatch, "", "stream %s: %w", stream, fmt.Errorf(format, args...))
}

// otherShards is the mismatch of a prefix that has another number of shards than the options.
func otherShards(stream, format string, args ...any) error {
	r := Refuse(ErrMismatch, "", "stream %s: %w", stream, fmt.Errorf(format, args...))
	r.shards = true
	return r
}

func stranger(stream, format string, args ...any) error {
	return Refuse(ErrStranger, "", "stream %s: %w", stream, fmt.Errorf(format, args...))
}

func sorted(s []string) []string { return slices.Sorted(slices.Values(s)) }

// clamp limits a duplicate window to the maximum age of a stream, as the server demands.
func clamp(window, maxAge time.Duration) time.Duration {
	if maxAge > 0 && window > maxAge {
		return maxAge
	}
	return window
}

func orDefault[T any](p *T, d T) T {
	if p == nil {
		return d
	}
	return *p
}

// eventsBytes bound the stream of events, so that no client fills the disk of NATS with them: the first one by default,
// a later one where NATS has no room for that, which it reserves; -1 is for none. Each is 1/64 below 4 GiB, 1 GiB or
// 256 MiB, so that a store of such a size has room for the other streams.
var eventsBytes = []int64{4032 << 20, 1008 << 20, 252 << 20, -1}

// hasNoRoom reports whether NATS has no room for the bound of a stream: it has too few resources, too little storage,
// or no server of a cluster has that.
func hasNoRoom(err error) bool {
	var refusal *jetstream.APIError
	return errors.As(err, &refusal) && slices.Contains([]jetstream.ErrorCode{10023, 10047, 10005}, refusal.ErrorCode)
}

// createEvents creates the stream of events with the first of eventsBytes for which NATS has room.
func createEvents(ctx context.Context, js jetstream.JetStream, want jetstream.StreamConfig) (stream jetstream.Stream,
	err error) {
	for _, want.MaxBytes = range eventsBytes {
		if stream, err = js.CreateStream(ctx, want); !hasNoRoom(err) {
			break
		}
	}
	return stream, err
}

// CheckSize returns an error if a stream has 80 % of the bytes that it may have. It removes its oldest messages then,
// soon before their age.
func CheckSize(info *jetstream.StreamInfo) error {
	size, most := info.State.Bytes, info.Config.MaxBytes
	if most <= 0 || size < uint64(most)/10*8 {
		return nil
	}
	return fmt.Errorf("stream %s has %d MiB of the %d MiB that it may have: at the limit it removes the oldest "+
		"messages, before they are %s old",
		info.Config.Name, size>>20, most>>20, info.Config.MaxAge)
}

// Limits are those of streams as they were provisioned, by which messages are removed or refused.
type Limits map[string]jetstream.StreamConfig

// Limits are the limits of the log, of the stream of events and of the stream of configurations.
func (s *Streams) Limits() Limits {
	all := Limits{}
	for _, stream := range []jetstream.Stream{s.Log, s.Events, s.Configs} {
		if stream != nil {
			c := stream.CachedInfo().Config
			all[c.Name] = c
		}
	}
	return all
}

// Check returns an error if somebody has changed a limit of a stream.
func (l Limits) Check(have jetstream.StreamConfig) error {
	was, changed := l[have.Name], []string(nil)
	for _, one := range []struct {
		name      string
		have, was any
	}{
		{"max_age", have.MaxAge, was.MaxAge}, {"max_bytes", have.MaxBytes, was.MaxBytes},
		{"max_msgs", have.MaxMsgs, was.MaxMsgs},
		{"max_msgs_per_subject", have.MaxMsgsPerSubject, was.MaxMsgsPerSubject},
		{"max_msg_size", have.MaxMsgSize, was.MaxMsgSize}, {"discard", have.Discard, was.Discard},
	} {
		if one.have != one.was {
			changed = append(changed, fmt.Sprintf("%s is %v, and was %v", one.name, one.have, one.was))
		}
	}
	if was.Name == "" || changed == nil {
		return nil
	}
	return fmt.Errorf("somebody has changed the limits of stream %s while lapse runs: %s", have.Name,
		strings.Join(changed, "; "))
}
