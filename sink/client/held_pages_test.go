//go:build held

package client_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/seed18712806/lapse/integration/held"
	"github.com/seed18712806/lapse/sink/client"
	"github.com/seed18712806/lapse/sink/wire"
)

// fill writes so many documents, with the ids "doc 0" and so on.
func fill(t *testing.T, all *client.Collection[counter], n int) {
	t.Helper()
	batch, err := all.Batch(t.Context(), nil)
	for i := 0; err == nil && i < n; i++ {
		err = batch.Upsert(t.Context(), fmt.Sprint("doc ", i), counter{1})
	}
	if err == nil {
		err = batch.Close(t.Context())
	}
	if err != nil {
		t.Fatal(err)
	}
}

// change changes documents of a full collection: it renews one, replaces one, deletes one and creates one.
func change(t *testing.T, all *client.Collection[counter]) {
	ctx := context.WithoutCancel(t.Context())
	for _, do := range []func() (client.Written, error){
		func() (client.Written, error) { return all.Touch(ctx, "doc 1") },
		func() (client.Written, error) { return all.Upsert(ctx, "doc 2", counter{2}) },
		func() (client.Written, error) { return all.Delete(ctx, "doc 3") },
		func() (client.Written, error) { return all.Upsert(ctx, "new", counter{1}) },
	} {
		if _, err := do(); err != nil {
			t.Error(err)
		}
	}
}

// TestHeldPages: somebody writes between two pages of a list or a query. Each document that nobody writes comes once,
// one that is written as it was, or as it is, or as both.
func TestHeldPages(t *testing.T) {
	for operation, read := range map[string]func(*client.Collection[counter]) (map[string][]int, error){
		"List": func(all *client.Collection[counter]) (got map[string][]int, failed error) {
			got = map[string][]int{}
			for d, err := range all.List(context.Background()) {
				got[d.ID], failed = append(got[d.ID], d.Value.N), errors.Join(failed, err)
			}
			return got, failed
		},
		"queryPages": func(all *client.Collection[counter]) (got map[string][]int, failed error) {
			got = map[string][]int{}
			for d, err := range all.Query(context.Background(), client.Where("/n").Gte(1), client.Scan()) {
				got[d.ID], failed = append(got[d.ID], d.Value.N), errors.Join(failed, err)
			}
			return got, failed
		},
	} {
		t.Run(operation, func(t *testing.T) {
			held.Each(t, "sink/client.Collection."+operation, held.Write, func(t *testing.T, during func(func())) {
				_, all := open[counter](t, "all")
				if _, err := all.Configure(t.Context(), client.Config{DefaultTTL: client.Never}); err != nil {
					t.Fatal(err)
				}
				const documents = wire.MaxListLimit + 200
				fill(t, all, documents)
				during(func() { change(t, all) })
				got, err := read(all)
				if err != nil {
					t.Fatal(err)
				}
				for i := range documents {
					id := fmt.Sprint("doc ", i)
					switch isWritten := i == 1 || i == 2; {
					case len(got[id]) > 1 && !isWritten, len(got[id]) == 0 && i != 3:
						t.Errorf("%s comes %d times", id, len(got[id]))
					case slices.Max(append(got[id], 1)) > 1 && i != 2, slices.Max(append(got[id], 1)) > 2:
						t.Errorf("%s comes in versions %v", id, got[id])
					}
				}
			})
		})
	}
}

// TestHeldState: somebody writes while a watch of changes begins: between the place, the pages of the documents and the
// end. The watch has each version of each document from the one that it began with, once; of the one that is deleted it
// has the end, if it has anything.
func TestHeldState(t *testing.T) {
	for _, operation := range []string{"Client.Documents", "Client.pages", "Client.Watch", "Client.readOn"} {
		t.Run(operation, func(t *testing.T) {
			held.Each(t, "sink/client."+operation, held.Write, func(t *testing.T, during func(func())) {
				l, all := watched(t)
				fill(t, all, wire.DefaultListLimit+50)
				happened := false
				during(func() { happened = true; change(t, all) })
				ctx, stop := context.WithTimeout(t.Context(), limit)
				defer stop()
				opts := client.WatchOptions{Collection: "all", Changes: true, Watching: func([]string) {
					last := counter{2}
					if happened {
						last.N = 3
					}
					_, err := all.Upsert(ctx, "doc 2", last)
					if err == nil {
						_, err = all.Upsert(ctx, "last", counter{1})
					}
					if err != nil {
						t.Error(err)
					}
				}}
				seen := heldVersions{t: t, last: map[string]int{}, ends: map[string]string{}, etags: map[string]bool{}}
				if err := l.Client().Watch(ctx, opts, func(n client.Notification) error {
					if seen.note(n); seen.ends["last"] != "" {
						stop()
					}
					return nil
				}); err != nil {
					t.Fatal(err)
				}
				if documents := len(seen.last); documents < wire.DefaultListLimit+50 {
					t.Errorf("%d documents have come", documents)
				}
				if end := seen.ends["doc 3"]; happened && (seen.ends["new"] == "" || end != "" && end != "deleted") {
					t.Errorf("the end of doc 3 is %s, that of the new document %s", end, seen.ends["new"])
				}
			})
		})
	}
}

// heldVersions is what a watch has of each document.
type heldVersions struct {
	t     *testing.T
	last  map[string]int    // the last value
	ends  map[string]string // the last kind
	etags map[string]bool   // by id and etag
}

// note notes a document or a change. A version may come once, and each but those of a touch behind the one before it.
func (v *heldVersions) note(n client.Notification) {
	v.t.Helper()
	if n.Current {
		return
	}
	id, kind, etag, body := n.ID, "stored", wire.Etag(0), []byte(nil)
	if d := n.Document; d != nil {
		id, etag, body = d.ID, d.Etag, d.Document
	} else {
		kind, etag, body = n.Changed.Kind(), n.Changed.Etag, n.Changed.Document
	}
	if v.ends[id] = kind; kind == "deleted" || len(body) == 0 {
		return
	}
	var c counter
	if err := json.Unmarshal(body, &c); err != nil {
		v.t.Error(err)
	}
	version := fmt.Sprint(id, " ", etag)
	if was, ok := v.last[id]; v.etags[version] || ok && c.N != was+1 && id != "doc 1" {
		v.t.Errorf("%s %s: value %d behind value %d", kind, version, c.N, was)
	}
	v.last[id], v.etags[version] = c.N, true
}
