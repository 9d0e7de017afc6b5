package backup

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/seed18712806/lapse/integration/harness"
	"github.com/seed18712806/lapse/sink/wire"
)

func TestMain(m *testing.M) { harness.Main(m) }

// truncate takes two snapshots of each shard, and waits until the logs are truncated behind them.
func truncate(t *testing.T, client *harness.Client, logs []string) {
	t.Helper()
	for range 2 {
		if _, errOut, code := harness.Run(t, "lapse", nil, "snapshot", "--server", client.NC.ConnectedUrl()); code != 0 {
			t.Fatalf("lapse snapshot: %s", errOut)
		}
	}
	for _, name := range logs {
		harness.Until(t, harness.Limit, name+" is truncated", func(ctx context.Context) error {
			log, err := client.JS.Stream(ctx, name)
			if err == nil && log.CachedInfo().State.FirstSeq == 1 {
				err = errors.New("it begins at its beginning")
			}
			return err
		})
	}
}

// A collection is configured after the logs were read, so that its documents expire, and
// before anything else is read. The restored logs do not have that configuration there, so
// its events are left out.
//
// It fails with several shards if the stream of configurations, which is read after the
// logs, counts as what the logs have.
func TestG3_ConfiguredWhileItIsTaken(t *testing.T) {
	for _, c := range []struct {
		shards    int
		truncated bool
	}{{1, false}, {2, false}, {2, true}} {
		t.Run(fmt.Sprintf("%d shards, truncated %v", c.shards, c.truncated), func(t *testing.T) {
			t.Parallel()
			shards := c.shards
			const documents = 20
			servers, redis := harness.StartNATS(t, harness.NATSOptions{Shards: shards}),
				harness.StartRedis(t, harness.RedisOptions{})
			harness.StartLapse(t, servers.URL(), redis.Address(), "--shards", strconv.Itoa(shards))
			client := harness.NewClient(t, servers.URL(), "")
			client.Configure("c", `{"defaultTtl":-1}`)
			var etags [documents]wire.Etag
			for i := range etags {
				etags[i] = client.Want(201, wire.Create, "c", fmt.Sprint("d", i), `{}`).Etag
			}
			logs := (Header{Prefix: wire.DefaultPrefix, Shards: shards}).logs()
			if c.truncated {
				truncate(t, client, logs)
			}
			configured := false
			configure := func(doing string) {
				if configured || !strings.HasPrefix(doing, "backing up "+logs[shards-1]+" ") {
					return
				}
				configured = true
				client.Configure("c", `{"defaultTtl":1}`)
				for i, etag := range etags {
					client.ExpiryOf("c", fmt.Sprint("d", i), etag, harness.Limit)
				}
			}
			var backup bytes.Buffer
			applying := func(context.Context) (bool, error) { return true, nil }
			if _, err := Take(t.Context(), Source{NATS: client.NC, Prefix: wire.DefaultPrefix, Applying: applying,
				Progress: configure}, &backup); err != nil {
				t.Fatal(err)
			}
			if events, restored := expiries(t, backup.Bytes(), Until{}); events != documents || restored > 0 {
				t.Errorf("%d of %d events are restored, want 0 of %d", restored, events, documents)
			}
		})
	}
}

// expiries are how many expiry events a backup has, and how many of them are restored.
func expiries(t *testing.T, backup []byte, until Until) (all, restored int) {
	t.Helper()
	found, err := Scan(bytes.NewReader(backup), until)
	if err != nil {
		t.Fatal(err)
	}
	from, err := newReader(bytes.NewReader(backup))
	for part := (stream{}); err == nil && part.Name != found.Prefix.EventsStream(); {
		part, err = from.Next()
	}
	if err != nil {
		t.Fatal(err)
	}
	_, err = visitAll(from, func(m *message) {
		stays, err := found.isRestored(m)
		if err != nil {
			t.Error(err)
		}
		if strings.HasPrefix(m.Subject, string(wire.DefaultPrefix)+".expired.") {
			all++
			if stays {
				restored++
			}
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	return all, restored
}

// A configuration makes documents expire, and is the last message of the logs that are restored. The
// collection is configured again later.
//
// It fails if that leaves the events out: a snapshot at the end of the logs is without their documents,
// so nobody would publish them again.
func TestG3_ExpiredInTheLastInstant(t *testing.T) {
	for _, shards := range []int{1, 2} {
		t.Run(fmt.Sprint(shards), func(t *testing.T) {
			t.Parallel()
			const documents = 20
			servers, redis := harness.StartNATS(t, harness.NATSOptions{Shards: shards}),
				harness.StartRedis(t, harness.RedisOptions{})
			harness.StartLapse(t, servers.URL(), redis.Address(), "--shards", strconv.Itoa(shards))
			client := harness.NewClient(t, servers.URL(), "")
			client.Configure("c", `{"defaultTtl":-1}`)
			var last wire.Outcome
			var etags [documents]wire.Etag
			for i := range etags {
				last = client.Want(201, wire.Create, "c", fmt.Sprint("d", i), `{}`)
				etags[i] = last.Etag
			}
			harness.At(t, time.UnixMilli(int64(last.Ts)+1100)) // so that they are due when they are configured
			client.Configure("c", `{"defaultTtl":1}`)
			for i, etag := range etags {
				client.ExpiryOf("c", fmt.Sprint("d", i), etag, harness.Limit)
			}
			var end wire.Time // the latest of the logs' stamps of that
			for _, e := range client.Events() {
				var at wire.Time
				if err := at.UnmarshalText([]byte(e.Header.Get("ce-time"))); err != nil {
					t.Fatal(err)
				}
				end = max(end, at)
			}
			until := time.UnixMilli(int64(end) + 1)
			harness.At(t, until.Add(time.Millisecond))
			client.Configure("c", `{"defaultTtl":-1}`)
			var backup bytes.Buffer
			applying := func(context.Context) (bool, error) { return true, nil }
			if _, err := Take(t.Context(), Source{NATS: client.NC, Prefix: wire.DefaultPrefix, Applying: applying,
				Progress: func(string) {}}, &backup); err != nil {
				t.Fatal(err)
			}
			if events, restored := expiries(t, backup.Bytes(), Until{Time: until}); events != documents ||
				restored != documents {
				t.Errorf("%d of %d events are restored, want all %d", restored, events, documents)
			}
		})
	}
}

// TestTakeCounts: a backup says of each stream how many messages it has, and which; a scan of it finds the same.
func TestTakeCounts(t *testing.T) {
	_, js := server(t, 1)
	var out bytes.Buffer
	taken, err := Take(t.Context(), Source{NATS: js.Conn(), Prefix: wire.DefaultPrefix, Applying: nobody}, &out)
	if err != nil {
		t.Fatal(err)
	}
	found, err := Scan(&out, Until{})
	if err != nil {
		t.Fatal(err)
	}
	counts := func(c *Contents) (all []string) {
		for _, s := range c.Streams {
			all = append(all, fmt.Sprintf("%s: %d messages, %d to %d", s.Name, s.Messages, s.First, s.Last))
		}
		return all
	}
	if diff := cmp.Diff(counts(found), counts(taken)); diff != "" || !slices.Contains(counts(taken),
		"LAPSE_LOG: 4 messages, 1 to 4") {
		t.Errorf("the backup says %v; a scan finds (-found +taken):\n%s", counts(taken), diff)
	}
}

// TestTakeWithoutAStream: somebody deletes a stream after the backup has read it. The backup is refused, because nobody
// knows any more what came after its end.
func TestTakeWithoutAStream(t *testing.T) {
	for _, shards := range []int{1, 2} {
		_, js := server(t, shards)
		h := Header{Prefix: wire.DefaultPrefix, Shards: shards}
		deleted := h.logs()[shards-1]
		progress := func(doing string) {
			if !strings.HasPrefix(doing, "backing up "+h.Prefix.EventsStream()+" ") {
				return
			}
			if err := js.DeleteStream(t.Context(), deleted); err != nil && !errors.Is(err, jetstream.ErrStreamNotFound) {
				t.Error(err)
			}
		}
		from := Source{NATS: js.Conn(), Prefix: h.Prefix, Applying: nobody, Progress: progress}
		_, err := Take(t.Context(), from, io.Discard)
		if want := "stream " + deleted + " was deleted meanwhile"; err == nil || err.Error() != want {
			t.Errorf("%v, want %s", err, want)
		}
	}
}

// TestDownloads: a connection has no subscription left behind the streams that it has downloaded.
func TestDownloads(t *testing.T) {
	_, js := server(t, 1)
	first := 0
	for i := range 3 {
		if err := download(t.Context(), js.Conn(), theLog, false, io.Discard); err != nil {
			t.Fatal(err)
		}
		if n := js.Conn().NumSubscriptions(); i == 0 {
			first = n
		} else if n != first {
			t.Errorf("%d subscriptions after %d downloads, and %d after the first", n, i+1, first)
		}
	}
}
