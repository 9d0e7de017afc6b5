//go:build held

package store_test

import (
	"bytes"
	"context"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/seed18712806/lapse/integration/harness/redistest"
	"github.com/seed18712806/lapse/integration/held"
	"github.com/seed18712806/lapse/sink/store"
)

// masters are some servers, and a client that takes them for the masters of a cluster.
func masters(t *testing.T, start func() redistest.Server) ([]redistest.Server, *redis.ClusterClient) {
	t.Helper()
	const n, slots = 3, 16384
	var servers []redistest.Server
	var ranges []redis.ClusterSlot
	for i := range n {
		servers = append(servers, start())
		ranges = append(ranges, redis.ClusterSlot{Start: i * slots / n, End: (i+1)*slots/n - 1,
			Nodes: []redis.ClusterNode{{Addr: fmt.Sprintf("master:%d", i)}}})
	}
	client := redis.NewClusterClient(&redis.ClusterOptions{MaxRetries: -1, ContextTimeoutEnabled: true,
		ClusterSlots: func(context.Context) ([]redis.ClusterSlot, error) { return ranges, nil },
		Dialer: func(ctx context.Context, _, address string) (net.Conn, error) {
			o := servers[address[len(address)-1]-'0'].Client.Options()
			return o.Dialer(ctx, o.Network, o.Addr)
		}})
	t.Cleanup(func() { _ = client.Close() })
	return servers, client
}

// TestHeldPing: the masters of a cluster end while they are asked whether they answer. The ping fails.
//
// It fails if the answer of one of them stands for all.
func TestHeldPing(t *testing.T) {
	held.Each(t, "sink/store.Shard.Ping", held.Restart, func(t *testing.T, during func(func())) {
		servers, client := masters(t, func() redistest.Server { return redistest.Start(t) })
		ended := false
		during(func() {
			for _, s := range servers {
				s.Client.ShutdownNoSave(ctx)
			}
			ended = true
		})
		if err := store.New(client, "lapse", 0, 1).Ping(ctx); (err != nil) != ended {
			t.Errorf("the masters have ended: %t, and the error is %v", ended, err)
		}
	})
}

// TestHeldMemory: the servers of a cluster get a limit while they are asked for their memory. The fullest one is one
// that has told its limit, and what it uses is of the same server.
//
// It fails if a server that was asked before, and has no limit, counts as fuller than one that has.
func TestHeldMemory(t *testing.T) {
	const limit = 1 << 30
	held.Each(t, "sink/store.Shard.Memory", held.Write, func(t *testing.T, during func(func())) {
		servers, client := masters(t, func() redistest.Server { return redistest.Start(t) })
		want := int64(0)
		during(func() {
			for i, s := range servers {
				if err := s.Client.ConfigSet(ctx, "maxmemory", fmt.Sprint(limit+i)).Err(); err != nil {
					t.Fatal(err)
				}
			}
			want = limit
		})
		m, err := store.New(client, "lapse", 0, 1).Memory(ctx)
		if err != nil || m.Limit < want || m.Limit > want+2 || m.Used < 100_000 || m.Used > limit {
			t.Errorf("the fullest: %+v, %v; want one with the limit %d", m, err, want)
		}
	})
}

// TestHeldReads: documents are read on all servers of a cluster while their reads are counted. The count is between
// those of before and after.
//
// It fails if a server is left out, or counts twice.
func TestHeldReads(t *testing.T) {
	held.Each(t, "sink/store.Shard.Reads", held.Write, func(t *testing.T, during func(func())) {
		servers, client := masters(t, func() redistest.Server { return redistest.StartMini(t) })
		script := redis.NewScript(`return 1`)
		read := func() {
			for _, s := range servers {
				if err := script.EvalRO(ctx, s.Client, nil).Err(); err != nil { // so it knows the script
					t.Fatal(err)
				}
				for range 10 {
					if err := script.EvalShaRO(ctx, s.Client, nil).Err(); err != nil {
						t.Fatal(err)
					}
				}
			}
		}
		read()
		least, most := int64(30), int64(30)
		during(func() { read(); least, most = 40, 60 }) // the call that was held counts the new ones of its server
		n, err := store.New(client, "lapse", 0, 1).Reads(ctx)
		if err != nil || n < least || n > most {
			t.Errorf("counted %d (%v), want %d to %d", n, err, least, most)
		}
	})
}

// secret is the body of a document that was removed.
const secret = "the-body-of-a-removed-document"

// removed writes some keys, and one that it removes again: its bytes are in the append-only file.
func removed(t *testing.T, client *redis.Client) {
	t.Helper()
	pipe := client.TxPipeline()
	for i := range 20 {
		pipe.Set(ctx, fmt.Sprint("key", i), "x", 0)
	}
	pipe.Set(ctx, "removed", secret, 0)
	pipe.Del(ctx, "removed")
	if _, err := pipe.Exec(ctx); err != nil {
		t.Fatal(err)
	}
}

// keeps are the files of a server that have the secret.
func keeps(t *testing.T, dir string) (files []string) {
	t.Helper()
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || strings.HasPrefix(d.Name(), "temp-") || !isData(d.Name()) {
			return err
		}
		content, err := os.ReadFile(path)
		if bytes.Contains(content, []byte(secret)) {
			files = append(files, path)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return files
}

// isData reports whether a file is one from which a server begins.
func isData(name string) bool {
	return strings.HasSuffix(name, ".rdb") || strings.HasSuffix(name, ".aof")
}

// slow lets a server take a while to write its files, until it is started again.
func slow(t *testing.T, client *redis.Client) {
	t.Helper()
	const perKey = "50000" // microseconds
	if err := client.ConfigSet(ctx, "rdb-key-save-delay", perKey).Err(); err != nil {
		t.Fatal(err)
	}
}

// TestHeldRewrite_Write: somebody else lets the server write its files while lapse does. When lapse's rewrite is done,
// no file has the bytes of what was removed before it began.
//
// It fails if lapse waits for the work of somebody else alone, which has begun before the removal.
func TestHeldRewrite_Write(t *testing.T) {
	for _, operation := range []string{"sink/store.rewrite", "sink/store.background"} {
		t.Run(strings.TrimPrefix(operation, "sink/store."), func(t *testing.T) {
			held.Each(t, operation, held.Write, func(t *testing.T, during func(func())) {
				s, server, _ := persistent(t, "--save", "3600 100000", "--rdbcompression", "no")
				removed(t, s.Client)
				if err := s.Client.Save(ctx).Err(); err != nil { // so it has both files
					t.Fatal(err)
				}
				during(func() {
					// Either is refused while the server does one of lapse's.
					s.Client.BgRewriteAOF(ctx)
					s.Client.BgSave(ctx)
				})
				if err := store.New(s.Client, "lapse", 0, 1).Rewrite(ctx); err != nil {
					t.Fatal(err)
				}
				if files := keeps(t, server.Dir()); len(files) > 0 {
					t.Errorf("%v still have the bytes of what was removed", files)
				}
			})
		})
	}
}

// TestHeldRewrite_Restart: the server is started again before it has written its files anew. The rewrite is done only
// when no file has the bytes of what was removed.
//
// It fails if lapse believes the status of a process of Redis that has not begun to write anything.
func TestHeldRewrite_Restart(t *testing.T) {
	for _, operation := range []string{"sink/store.rewrite", "sink/store.background"} {
		t.Run(strings.TrimPrefix(operation, "sink/store."), func(t *testing.T) {
			held.Each(t, operation, held.Restart, func(t *testing.T, during func(func())) {
				s, server, restart := persistent(t)
				removed(t, s.Client)
				slow(t, s.Client)
				during(restart)
				if err := store.New(s.Client, "lapse", 0, 1).Rewrite(ctx); err != nil {
					t.Fatal(err)
				}
				if files := keeps(t, server.Dir()); len(files) > 0 {
					t.Errorf("%v still have the bytes of what was removed", files)
				}
			})
		})
	}
}

// TestHeldRewrite_Cluster: the nodes of a cluster are started again while they write their files anew, one after the
// other. In the end no file of any of them has the bytes of what was removed.
func TestHeldRewrite_Cluster(t *testing.T) {
	held.Each(t, "sink/store.Shard.Rewrite", held.Restart, func(t *testing.T, during func(func())) {
		var dirs []string
		var restarts []func()
		_, client := masters(t, func() redistest.Server {
			s, server, restart := persistent(t)
			removed(t, s.Client)
			dirs, restarts = append(dirs, server.Dir()), append(restarts, restart)
			return s
		})
		during(func() {
			for _, restart := range restarts {
				restart()
			}
		})
		if err := store.New(client, "lapse", 0, 1).Rewrite(ctx); err != nil {
			t.Fatal(err)
		}
		for _, dir := range dirs {
			for _, file := range keeps(t, dir) {
				t.Errorf("%s still has the bytes of what was removed", file)
			}
		}
	})
}
