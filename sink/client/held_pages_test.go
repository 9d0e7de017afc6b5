//go:build held

package client_test

import (
	"context"
	"errors"
	"fmt"
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
// one that is written as it was or as it is.
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
					versions := got[id]
					switch {
					case len(versions) > 1, len(versions) == 0 && i != 3:
						t.Errorf("%s comes %d times", id, len(versions))
					case len(versions) == 1 && versions[0] != 1 && (i != 2 || versions[0] != 2):
						t.Errorf("%s comes in version %d", id, versions[0])
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
				_, all := watched(t)
				fill(t, all, wire.DefaultListLimit+50)
				during(func() { change(t, all) })
				ctx, stop := context.WithTimeout(t.Context(), limit)
				defer stop()
				last, ends := map[string]int{}, map[string]client.ChangeKind{}
				err := all.Watch(ctx, func(c client.Change[counter]) error {
					if c.Kind == client.Current {
						_, err := all.Upsert(ctx, "doc 2", counter{3})
						if err == nil {
							_, err = all.Upsert(ctx, "last", counter{1})
						}
						return err
					}
					was, there := last[c.ID]
					if c.Kind != client.Deleted && !c.Unchanged {
						if c.ID == "doc 2" && c.Value.N == 3 && was == 1 && ends["new"] == "" {
							was = 2 // nothing has happened
						}
						if there && c.Value.N != was+1 {
							t.Errorf("%s %s: version %d behind version %d", c.Kind, c.ID, c.Value.N, was)
						}
						last[c.ID] = c.Value.N
					}
					if ends[c.ID] = c.Kind; c.ID == "last" {
						stop()
					}
					return nil
				})
				if err != nil {
					t.Fatal(err)
				}
				if len(last) < wire.DefaultListLimit+50 || last["doc 2"] != 3 || last["last"] != 1 {
					t.Errorf("%d documents, %d of them", last["doc 2"], len(last))
				}
				if _, err := all.Get(t.Context(), "doc 3"); err != nil && ends["doc 3"] != client.Deleted && ends["doc 3"] != "" {
					t.Errorf("the end of doc 3 is %s", ends["doc 3"])
				}
				if _, err := all.Get(t.Context(), "new"); err == nil && ends["new"] == "" {
					t.Error("the new document has not come")
				}
			})
		})
	}
}
