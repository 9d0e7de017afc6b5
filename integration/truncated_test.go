package integration

import (
	"context"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strconv"
	"testing"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/seed18712806/lapse/integration/harness"
	"github.com/seed18712806/lapse/integration/oracle"
	"github.com/seed18712806/lapse/sink/wire"
)

// copyLogs makes copies of the logs, which keep what lapse truncates.
func (w *world) copyLogs() {
	w.t.Helper()
	for _, log := range w.logNames() {
		if _, err := w.JS.CreateStream(w.t.Context(), jetstream.StreamConfig{Name: "COPY_" + log,
			Mirror: &jetstream.StreamSource{Name: log}}); err != nil {
			w.t.Fatal(err)
		}
	}
}

// copied are the messages of the copy of each log, up to the last one that the log has now.
func (w *world) copied() (all [][]oracle.Message) {
	w.t.Helper()
	for _, name := range w.logNames() {
		log, err := w.JS.Stream(w.t.Context(), name)
		if err != nil {
			w.t.Fatal(err)
		}
		harness.Until(w.t, harness.Limit, "the copy has everything", func(ctx context.Context) error {
			c, err := w.JS.Stream(ctx, "COPY_"+name)
			if err != nil {
				return err
			}
			if has, want := c.CachedInfo().State.LastSeq, log.CachedInfo().State.LastSeq; has < want {
				return fmt.Errorf("it has %d messages of %d", has, want)
			}
			return nil
		})
		all = append(all, w.Stream("COPY_"+name))
	}
	return all
}

// truncate takes two snapshots of each shard, and waits until the logs are truncated behind them.
func (w *world) truncate(between func()) {
	w.t.Helper()
	run(w.t, "snapshot", "--server", w.NC.ConnectedUrl())
	between()
	run(w.t, "snapshot", "--server", w.NC.ConnectedUrl())
	for _, name := range w.logNames() {
		harness.Until(w.t, harness.Limit, name+" is truncated", func(ctx context.Context) error {
			log, err := w.JS.Stream(ctx, name)
			if err == nil && log.CachedInfo().State.FirstSeq == 1 {
				err = fmt.Errorf("it begins at its beginning")
			}
			return err
		})
	}
}

// restoredBehind is restored, for a backup that a world took when its logs had been truncated.
func restoredBehind(t *testing.T, backup string, first *world, flags ...string) *world {
	t.Helper()
	w := serversOf(t, harness.RedisOptions{}, first.shards)
	w.restoredAt = now()
	run(t, append([]string{"restore", backup, "--server", w.nats.URL()}, flags...)...)
	for i, log := range first.copied() {
		last := log[len(log)-1].Seq // what is behind it has been completed by the restore
		has := slices.DeleteFunc(w.Stream(w.logNames()[i]), func(m oracle.Message) bool { return m.Seq > last })
		if len(has) == 0 || has[0].Seq == 1 {
			t.Fatalf("the restored log is not truncated: it has %d messages", len(has))
		}
		end := has[len(has)-1].Seq
		w.before = append(w.before, slices.DeleteFunc(log, func(m oracle.Message) bool { return m.Seq > end }))
	}
	w.start()
	return w
}

// TestG3_BackupOfATruncatedLog: a backup is taken under load, when the log was truncated behind snapshots. The restored
// lapse has what the whole log gives, and goes on.
//
// It fails if the backup lacks a snapshot that its log continues.
func TestG3_BackupOfATruncatedLog(t *testing.T) {
	t.Parallel()
	for _, shards := range []int{1, 3} {
		t.Run(fmt.Sprint(shards), func(t *testing.T) {
			t.Parallel()
			first := serversOf(t, harness.RedisOptions{}, shards)
			first.start()
			first.copyLogs()
			l := startLoad(t, first.Client, 148)
			l.wait(t, 300)
			first.truncate(func() { l.wait(t, 100) })
			l.wait(t, 100)
			name := first.backup()
			if info, err := os.Stat(name); err != nil || info.Size() > 4<<20 {
				t.Errorf("the backup is large, as the fillings of the log are: %d bytes, %v", info.Size(), err)
			} else {
				t.Logf("the backup has %d bytes", info.Size())
			}
			l.wait(t, 100)
			l.end()
			second := restoredBehind(t, name, first)
			more := startLoad(t, second.Client, 149)
			more.wait(t, 200)
			more.end()
			second.verify()
			first.before = first.copied()
			first.verify()
		})
	}
}

// TestG3_UntilBehindASnapshot: a backup with a truncated log can be restored until each message that the oldest
// snapshots continue. For an earlier one it is refused, and the earliest one is named.
//
// It fails if a snapshot is used that is later than the log, or if the refusal names a message at which
// some shard is refused.
func TestG3_UntilBehindASnapshot(t *testing.T) {
	t.Parallel()
	first := external(t, harness.RedisOptions{})
	first.copyLogs()
	l := startLoad(t, first.Client, 150)
	l.wait(t, 200)
	first.truncate(func() { l.wait(t, 200) })
	l.wait(t, 200)
	l.end()
	log := first.Log() // before the backup, which may have more ticks
	name := first.backup()
	_, errOut, _ := harness.Run(t, "lapse", nil, "restore", name, "--until", "1", "--data", t.TempDir())
	found := regexp.MustCompile(`the earliest is sequence (\d+) of LAPSE_LOG or the instant (\S+),`).FindStringSubmatch(errOut)
	if found == nil {
		t.Fatalf("the refusal is %q", errOut)
	}
	earliest, err := strconv.ParseUint(found[1], 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	refuses(t, "the earliest is sequence "+found[1], "restore", name, "--until", fmt.Sprint(earliest-1), "--data",
		t.TempDir())
	end := log[len(log)-1].Seq
	for _, until := range []string{found[1], found[2], fmt.Sprint((earliest + end) / 2), fmt.Sprint(end)} {
		t.Run(until, func(t *testing.T) {
			second := restoredBehind(t, name, first, "--until", until)
			more := startLoad(t, second.Client, 151)
			more.wait(t, 50)
			more.end()
			second.verify()
		})
	}
}

// TestG7_UntilBeforeADropBehindASnapshot: a collection is dropped by mistake when the log was truncated, and a snapshot
// is later than the drop. The backup is restored until just before it.
func TestG7_UntilBeforeADropBehindASnapshot(t *testing.T) {
	t.Parallel()
	for _, shards := range []int{1, 3} {
		t.Run(fmt.Sprint(shards), func(t *testing.T) {
			t.Parallel()
			first := serversOf(t, harness.RedisOptions{}, shards)
			first.start()
			first.copyLogs()
			first.Configure("c", `{"defaultTtl":-1}`)
			for i := range 30 {
				first.Want(201, wire.Upsert, "c", fmt.Sprint(i), `{}`)
			}
			gone := first.Want(201, wire.Upsert, "c", "gone", `{"ttl":1}`)
			first.ExpiryOf("c", "gone", gone.Etag, harness.Limit)
			var before wire.Time
			first.truncate(func() {
				first.Want(201, wire.Upsert, "c", "soon", `{"ttl":20}`)
				after(t, now()+2)
				before = now()
				after(t, before+2)
				first.Do(first.Prefix.Drop("c"), "", nil)
				first.Want(201, wire.Upsert, "c", "1", `{"after":true}`)
			})
			second := restoredBehind(t, first.backup(), first, "--until", before.String())
			for i := range 30 {
				if !second.Found("c", fmt.Sprint(i)) {
					t.Errorf("document %d is not there", i)
				}
			}
			second.verify()
		})
	}
}
