package integration

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/seed18712806/lapse/integration/harness"
	"github.com/seed18712806/lapse/integration/oracle"
	"github.com/seed18712806/lapse/sink/wire"
)

// run runs a command of lapse and fails the test unless it succeeds.
func run(t *testing.T, args ...string) string {
	t.Helper()
	out, errOut, code := harness.Run(t, "lapse", nil, args...)
	if code != 0 {
		t.Fatalf("lapse %v: code %d: %s%s", args, code, out, errOut)
	}
	return out
}

// refuses runs a command of lapse that must fail with a text.
func refuses(t *testing.T, text string, args ...string) {
	t.Helper()
	if out, errOut, code := harness.Run(t, "lapse", nil, args...); code == 0 || !strings.Contains(errOut, text) {
		t.Errorf("lapse %v: code %d: %s%s, want %q", args, code, out, errOut, text)
	}
}

// backup backs up what lapse has.
func (w *world) backup() string {
	w.t.Helper()
	name := filepath.Join(w.t.TempDir(), "backup")
	run(w.t, "backup", name, "--server", w.NC.ConnectedUrl())
	run(w.t, "backup", "--verify", name)
	return name
}

// restored is a world with empty servers, into which a backup was restored, and lapse.
func restored(t *testing.T, backup string, shards int, flags ...string) *world {
	t.Helper()
	w := serversOf(t, harness.RedisOptions{}, shards)
	w.restoredAt = now()
	run(t, append([]string{"restore", backup, "--server", w.nats.URL()}, flags...)...)
	w.start()
	t.Cleanup(func() {
		if log := w.lapse.Log(); strings.Contains(log, "messages were deleted") {
			t.Errorf("lapse takes the sequences that a restore leaves out for messages that somebody has deleted:\n%s",
				log)
		}
	})
	return w
}

// start starts lapse as a process.
func (w *world) start() {
	w.t.Helper()
	w.lapse = harness.StartLapse(w.t, w.nats.URL(), w.redis.Address(), "--duplicate-window", duplicateWindow.String(),
		"--shards", strconv.Itoa(max(w.shards, 1)))
}

// logNames are the names of the logs.
func (w *world) logNames() (names []string) {
	for shard := range max(w.shards, 1) {
		names = append(names, w.Prefix.Log(shard, max(w.shards, 1)).Stream())
	}
	return names
}

// beginsLike checks that a stream has the first messages of another one: up to which sequence.
func beginsLike(t *testing.T, name string, restored, original []oracle.Message) (end uint64) {
	t.Helper()
	for i, m := range restored {
		if i == len(original) || m.Seq != original[i].Seq {
			break
		}
		if o := original[i]; m.At != o.At || m.Subject != o.Subject || !bytes.Equal(m.Data, o.Data) {
			t.Fatalf("%s: message %d was %s at %s, and is %s at %s", name, m.Seq, o.Subject, o.At, m.Subject, m.At)
		}
		end = m.Seq
	}
	return end
}

// TestG3_BackupUnderLoad: a backup is taken under load, and restored into empty servers. The restored lapse goes on
// under load. Its log begins as the original's; its documents and its events are those of its log, each event once; and
// what the original had published of it has the same place in the stream. The first lapse is undisturbed.
//
// It fails if the backup reads the events before everything that its log caused is published; if the
// restore leaves in the stream what the lost end of the log has caused; if the identity of the log
// does not stay, so that lapse would not go on from its events; or if sequences are used twice.
func TestG3_BackupUnderLoad(t *testing.T) {
	t.Parallel()
	for _, shards := range []int{1, 3} {
		t.Run(fmt.Sprint(shards), func(t *testing.T) {
			t.Parallel()
			first := serversOf(t, harness.RedisOptions{}, shards)
			first.start()
			l := startLoad(t, first.Client, 140)
			l.wait(t, 600)
			name := first.backup()
			l.wait(t, 300)
			second := restored(t, name, shards)
			more := startLoad(t, second.Client, 141)
			more.wait(t, 400)
			l.end()
			more.end()
			first.verify()
			result := second.verify()
			ends := map[string]uint64{}
			for _, log := range first.logNames() {
				original, now := first.Stream(log), second.Stream(log)
				ends[log] = beginsLike(t, log, now, original)
				if next := now[len(now)-1].Seq; next <= original[len(original)-1].Seq {
					t.Errorf("%s goes on with %d, and the original has used %d", log, next,
						original[len(original)-1].Seq)
				}
				if ends[log] == 0 {
					t.Errorf("%s is empty", log)
				}
			}
			kept := beginsLike(t, "events", result.Events, first.Events())
			t.Logf("of logs that end at %v, and %d events up to %d", ends, len(result.Events), kept)
			if kept == 0 {
				t.Error("no event was restored")
			}
		})
	}
}

// TestG3_ExpiredBetweenBackupAndRestore: what expires between the backup and the restore gets its event from the
// restored lapse, once, with the ids that the original has given it. What had expired before does not.
func TestG3_ExpiredBetweenBackupAndRestore(t *testing.T) {
	t.Parallel()
	first := external(t, harness.RedisOptions{})
	first.Configure("c", `{"defaultTtl":-1}`)
	early := first.Want(201, wire.Upsert, "c", "early", `{"ttl":1}`)
	first.ExpiryOf("c", "early", early.Etag, harness.Limit)
	late := first.Want(201, wire.Upsert, "c", "late", `{"ttl":5}`)
	name := first.backup()
	first.ExpiryOf("c", "late", late.Etag, harness.Limit)
	second := restored(t, name, 1)
	second.ExpiryOf("c", "late", late.Etag, harness.Limit)
	second.verify()
	source := func(w *world) string {
		all := w.Events()
		return all[len(all)-1].Header.Get("ce-source") + " " + all[len(all)-1].Header.Get("ce-id")
	}
	if a, b := source(first), source(second); a != b {
		t.Errorf("the event was %s, and is %s", a, b)
	}
}

// TestG7_UntilBeforeADrop: a collection was dropped by mistake, and others were written before and after it. The backup
// is restored until just before the drop: the documents are there, each expires when it has to, and no event comes a
// second time.
func TestG7_UntilBeforeADrop(t *testing.T) {
	t.Parallel()
	for _, shards := range []int{1, 3} {
		t.Run(fmt.Sprint(shards), func(t *testing.T) {
			t.Parallel()
			first := serversOf(t, harness.RedisOptions{}, shards)
			first.start()
			first.Configure("c", `{"defaultTtl":-1}`)
			first.Configure("d", `{"defaultTtl":-1}`)
			for i := range 30 {
				first.Want(201, wire.Upsert, "c", fmt.Sprint(i), `{}`)
			}
			soon := first.Want(201, wire.Upsert, "c", "soon", `{"ttl":6}`)
			gone := first.Want(201, wire.Upsert, "d", "gone", `{"ttl":1}`)
			first.ExpiryOf("d", "gone", gone.Etag, harness.Limit)
			after(t, now()+2)
			before := now()
			after(t, before+2)
			_, dropped := first.Do(first.Prefix.Drop("c"), "", nil)
			first.Want(201, wire.Upsert, "c", "1", `{"after":true}`)
			first.Want(201, wire.Upsert, "d", "2", `{"ttl":1}`)
			first.Configure("d", `{"defaultTtl":1}`)
			name := first.backup()
			until := fmt.Sprint(dropped)
			if shards > 1 {
				refuses(t, "use an instant", "restore", name, "--until", until, "--data", t.TempDir())
				until = before.String()
			}
			second := restored(t, name, shards, "--until", until)
			for i := range 30 {
				if !second.Found("c", fmt.Sprint(i)) {
					t.Errorf("document %d is not there", i)
				}
			}
			if second.Found("d", "2") {
				t.Error("a document that was written after the mistake is there")
			}
			second.ExpiryOf("c", "soon", soon.Etag, harness.Limit)
			second.Want(201, wire.Upsert, "d", "3", `{"ttl":1}`)
			second.verify()
		})
	}
}

// TestG3_UntilTheMiddle: a backup under load is restored until the middle of its log, configurations and all: the
// result is what the log up to there gives.
func TestG3_UntilTheMiddle(t *testing.T) {
	t.Parallel()
	first := external(t, harness.RedisOptions{})
	l := startLoad(t, first.Client, 142)
	l.wait(t, 800)
	l.end()
	name := first.backup()
	log := first.Log()
	middle := log[len(log)/2]
	second := restored(t, name, 1, "--until", fmt.Sprint(middle.Seq))
	more := startLoad(t, second.Client, 143)
	more.wait(t, 300)
	more.end()
	second.verify()
	if end := beginsLike(t, "log", second.Log(), log); end != middle.Seq-1 {
		t.Errorf("the log ends at %d, want %d", end, middle.Seq-1)
	}
	refuses(t, "ends at sequence", "restore", name, "--until", "99999999", "--data", t.TempDir())
	refuses(t, "use a later backup", "restore", name, "--until", "2199-01-01T00:00:00Z", "--data", t.TempDir())
}

// TestG7_BackupEmbedded: an embedded lapse is backed up while it runs and, from its directory, while it does not; the
// backup is restored into another directory.
func TestG7_BackupEmbedded(t *testing.T) {
	t.Parallel()
	first := embedded(t)
	l := startLoad(t, first.Client, 144)
	l.wait(t, 300)
	name := first.backup()
	l.end()
	refuses(t, "another lapse serve is using it", "backup", name, "--force", "--data", first.lapse.Data())
	first.lapse.Kill()
	offline := filepath.Join(t.TempDir(), "offline")
	run(t, "backup", offline, "--data", first.lapse.Data())
	for _, one := range []string{name, offline} {
		lapse := harness.PrepareEmbedded(t, "--duplicate-window", duplicateWindow.String())
		run(t, "restore", one, "--data", lapse.Data())
		refuses(t, "exists: restore into servers without it", "restore", one, "--data", lapse.Data())
		lapse.Start()
		second := &world{t: t, lapse: lapse}
		second.connectEmbedded()
		more := startLoad(t, second.Client, 145)
		more.wait(t, 200)
		more.end()
		second.verify()
	}
}

// TestG7_RestoredWithAnOldRedis: Redis of before is not the one that fits a restored log: lapse refuses it, even if the
// log is longer by now than what Redis has applied.
func TestG7_RestoredWithAnOldRedis(t *testing.T) {
	t.Parallel()
	first := external(t, harness.RedisOptions{})
	first.Want(201, wire.Upsert, "c", "1", `{}`)
	name := first.backup()
	lost := first.Want(201, wire.Upsert, "c", "lost", `{}`)
	first.settled("c", "lost", uint64(lost.Etag))
	first.lapse.Terminate()
	second := servers(t, harness.RedisOptions{})
	run(t, "restore", name, "--server", second.nats.URL())
	for range 10 {
		second.Write(wire.Upsert, "c", "2", `{}`)
	}
	lapse := harness.PrepareLapse(t, "--nats", second.nats.URL(), "--redis", "redis://"+first.redis.Address())
	if why := lapse.Refuses(); !strings.Contains(why, "restored from a backup that ends at sequence") {
		t.Errorf("lapse with the Redis of before: %s", why)
	}
}

// TestG7_InterruptedRestore: a restore that was interrupted leaves nothing that lapse takes for whole, and the same
// command ends it. So does one that breaks off while the streams are completed.
func TestG7_InterruptedRestore(t *testing.T) {
	t.Parallel()
	first := external(t, harness.RedisOptions{})
	l := startLoad(t, first.Client, 146)
	l.wait(t, 300)
	l.end()
	name := first.backup()
	refuses(t, "a process of lapse serves", "restore", name, "--server", first.nats.URL())

	second := servers(t, harness.RedisOptions{})
	run(t, "restore", name, "--server", second.nats.URL())
	mark := func(stream string, committed bool) {
		t.Helper()
		info, err := second.JS.Stream(t.Context(), stream)
		if err != nil {
			t.Fatal(err)
		}
		config := info.CachedInfo().Config
		config.Metadata[wire.FormatKey] = wire.Restoring
		if committed {
			config.Metadata["lapse-restore-committed"] = config.Metadata["lapse-backup"]
		}
		if strings.HasSuffix(stream, "_LOG") {
			config.Subjects = []string{"lapse.restoring." + stream}
		}
		if _, err := second.JS.UpdateStream(t.Context(), config); err != nil {
			t.Fatal(err)
		}
	}
	refusesToStart := func() {
		t.Helper()
		lapse := harness.PrepareLapse(t, "--nats", second.nats.URL(), "--redis", "redis://"+second.redis.Address())
		if log := lapse.FailsToStart(); !strings.Contains(log, "run lapse restore again") {
			t.Errorf("lapse with an interrupted restore: %s", log)
		}
	}
	log, events := second.Prefix.LogStream(), second.Prefix.EventsStream()
	checkpoints, snapshots := "KV_"+second.Prefix.CheckpointBucket(), second.Prefix.SnapshotStream()
	mark(log, true) // all but the root is complete
	refusesToStart()
	refuses(t, "exists", "restore", name, "--until", "3", "--server", second.nats.URL())
	run(t, "restore", name, "--server", second.nats.URL())
	for _, stream := range []string{snapshots, checkpoints, events, log} { // nothing is complete
		mark(stream, false)
	}
	if err := second.JS.DeleteStream(t.Context(), checkpoints); err != nil {
		t.Fatal(err)
	}
	refusesToStart()
	run(t, "restore", name, "--server", second.nats.URL())
	second.start()
	second.verify()
}

// complete reports whether the root of the prefix is restored, and has no mark.
func (w *world) complete() bool {
	w.t.Helper()
	root, err := w.JS.Stream(w.t.Context(), w.Prefix.LogStream())
	return err == nil && root.CachedInfo().Config.Metadata[wire.FormatKey] != wire.Restoring
}

// TestG7_KilledRestore: a restore that is killed at any time leaves nothing that lapse takes for whole.
func TestG7_KilledRestore(t *testing.T) {
	t.Parallel()
	first := external(t, harness.RedisOptions{})
	l := startLoad(t, first.Client, 147)
	l.wait(t, 100)
	large := make([]byte, 200<<10)
	for i := range 60 {
		for j := range large {
			large[j] = "abcdefghijklmnopqrstuvwxyz012345"[rand.IntN(32)] // so that it does not shrink
		}
		first.Write(wire.Upsert, "large", fmt.Sprint(i), `{"a":"`+string(large)+`"}`)
	}
	l.end()
	name := first.backup()
	second := servers(t, harness.RedisOptions{})
	for killed, wait := true, 40*time.Millisecond; killed; wait += wait / 8 {
		ctx, cancel := context.WithTimeout(t.Context(), wait)
		killed = harness.Killed(ctx, t, "lapse", "restore", name, "--server", second.nats.URL())
		cancel()
		lapse := harness.PrepareLapse(t, "--nats", second.nats.URL(), "--redis", "redis://"+second.redis.Address())
		made := 0
		for range second.JS.StreamNames(t.Context()).Name() {
			made++
		}
		t.Logf("after %s: killed: %v, streams: %d", wait, killed, made)
		if killed && made > 0 {
			// It may be complete already.
			if _, err := second.JS.Stream(t.Context(), second.Prefix.LogStream()); err == nil && !second.complete() {
				lapse.FailsToStart()
			}
		}
	}
	if _, errOut, code := harness.Run(t, "lapse", nil, "restore", name, "--server", second.nats.URL()); code != 0 &&
		!strings.Contains(errOut, "exists") {
		t.Fatalf("restore: %s", errOut)
	}
	second.start()
	second.verify()
}

// TestG7_DamagedBackup: a damaged backup is refused by name before anything is changed, wherever the damage is.
func TestG7_DamagedBackup(t *testing.T) {
	t.Parallel()
	first := external(t, harness.RedisOptions{})
	for i := range 20 {
		first.Want(201, wire.Upsert, "c", fmt.Sprint(i), `{}`)
	}
	whole, err := os.ReadFile(first.backup())
	if err != nil {
		t.Fatal(err)
	}
	name := filepath.Join(t.TempDir(), "damaged")
	second := servers(t, harness.RedisOptions{})
	try := func(content []byte, what string) {
		t.Helper()
		if err := os.WriteFile(name, content, 0o600); err != nil {
			t.Fatal(err)
		}
		out, errOut, code := harness.Run(t, "lapse", nil, "restore", name, "--server", second.nats.URL())
		if code != 1 || !strings.Contains(errOut, "Nothing is changed") || !strings.Contains(errOut, "backup") {
			t.Errorf("%s: code %d: %s%s", what, code, out, errOut)
		}
	}
	for i := 0; i < len(whole); i += len(whole)/25 + 1 {
		damaged := bytes.Clone(whole)
		damaged[i] ^= 1
		try(damaged, fmt.Sprintf("byte %d", i))
	}
	for _, end := range []int{0, 5, 14, 15, 100, len(whole) / 2, len(whole) - 1} {
		try(whole[:end], fmt.Sprintf("%d bytes", end))
	}
	try(append(bytes.Clone(whole), '\n'), "one byte more")
	names := second.JS.StreamNames(t.Context())
	for stream := range names.Name() {
		t.Errorf("stream %s was made", stream)
	}
	if err := names.Err(); err != nil {
		t.Error(err)
	}
}
