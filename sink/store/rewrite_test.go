package store_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/seed18712806/lapse/integration/harness"
	"github.com/seed18712806/lapse/integration/harness/redistest"
	"github.com/seed18712806/lapse/sink/store"
)

// TestG10_AnOldDumpIsWrittenAnew: a Redis with an append-only file has a snapshot of before, dump.rdb, which it neither
// loads nor writes. After the rewrite neither file has the bytes of a document that was removed.
//
// It fails if lapse lets the server write only those files anew that the server tells of: after a start with an
// append-only file, INFO says nothing of dump.rdb.
func TestG10_AnOldDumpIsWrittenAnew(t *testing.T) {
	const body = "the-body-of-a-removed-document"
	server := harness.StartRedis(t, harness.RedisOptions{Persistent: true, Args: []string{"--rdbcompression", "no"}})
	client := server.Client()
	if err := client.Set(ctx, "removed", body, 0).Err(); err != nil {
		t.Fatal(err)
	}
	if err := client.Save(ctx).Err(); err != nil {
		t.Fatal(err)
	}
	if err := client.Del(ctx, "removed").Err(); err != nil {
		t.Fatal(err)
	}
	server.Kill()
	server.Start()
	redistest.WaitFor(t, "the client connects anew", func() bool { return client.Ping(ctx).Err() == nil })
	dump := filepath.Join(server.Dir(), "dump.rdb")
	has := func() bool {
		content, err := os.ReadFile(dump)
		if err != nil {
			t.Fatal(err)
		}
		return strings.Contains(string(content), body)
	}
	if !has() {
		t.Fatal("dump.rdb does not have the document before the rewrite: the test shows nothing")
	}
	if err := store.New(client, "lapse", 0, 1).Rewrite(ctx); err != nil {
		t.Fatal(err)
	}
	if has() {
		t.Error("dump.rdb still has the document that was removed")
	}
}
