package client_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/seed18712806/lapse/sink/client"
	"github.com/seed18712806/lapse/sink/client/clienttest"
)

// The client tells a collection that does not exist from a document that does not.
//
// Goes red if the reason of the answer is lost on the way.
func TestNoCollection(t *testing.T) {
	l := clienttest.Start(t)
	orders, err := client.Open[map[string]any](l.Client(), "orders")
	if err != nil {
		t.Fatal(err)
	}
	ctx := t.Context()
	_, put := orders.Upsert(ctx, "1", map[string]any{})
	_, get := orders.Get(ctx, "1")
	_, config := orders.Config(ctx)
	_, drop := orders.Drop(ctx)
	for what, err := range map[string]error{"put": put, "get": get, "config": config, "drop": drop} {
		if !errors.Is(err, client.ErrNoCollection) || !errors.Is(err, client.ErrNotFound) || !strings.Contains(err.Error(),
			"lapse config orders") {
			t.Errorf("%s: %v", what, err)
		}
	}
	if _, err := orders.Configure(ctx, client.Config{}); err != nil {
		t.Fatal(err)
	}
	if _, err := orders.Get(ctx, "1"); !errors.Is(err, client.ErrNotFound) || errors.Is(err, client.ErrNoCollection) {
		t.Errorf("get of a document that does not exist: %v", err)
	}
	if _, err := orders.Upsert(ctx, "1", map[string]any{}); err != nil {
		t.Error(err)
	}
}
