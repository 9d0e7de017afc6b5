package elsewhere

import (
	"context"
	"errors"
	"fmt"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"

	"go.etcd.io/bbolt"

	"github.com/seed18712806/lapse/deploy/recipes"
	"github.com/seed18712806/lapse/integration/harness"
	harnessprograms "github.com/seed18712806/lapse/integration/harness/programs"
)

// TestWebhookRecipe: the receiver that people copy takes what lapse forward posts, and each event takes effect once.
//
// It fails if the signature, the headers or the CloudEvent of a webhook change.
func TestWebhookRecipe(t *testing.T) {
	t.Parallel()
	const secret = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
	file := filepath.Join(t.TempDir(), "secret")
	db, err := bbolt.Open(filepath.Join(t.TempDir(), "db"), 0o600, nil)
	if err = errors.Join(err, os.WriteFile(file, []byte(secret+"\n"), 0o600)); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	effects := []byte("effects")
	receiver, err := recipes.NewWebhook(recipes.WebhookOptions{DB: db, Secret: secret,
		Effect: func(tx *bbolt.Tx, e recipes.WebhookEvent) error {
			b, err := tx.CreateBucketIfNotExists(effects)
			if err != nil {
				return err
			}
			n, _ := b.NextSequence()
			return b.Put([]byte(fmt.Sprint(n, " ", e.Type, " ", e.Subject)), e.Data)
		}})
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewServer(receiver)
	t.Cleanup(server.Close)

	l := harness.EmbeddedLapse(t, harness.ClosedCollections)
	base := "http://" + l.HTTP
	for _, c := range [][2]string{
		{"/v1/collections/carts", `{"defaultTtl":3600}`},
		{"/v1/collections/carts/documents/7", `{"items":["tea"],"ttl":1}`},
	} {
		if status, text := pathClients["go"](t, "PUT", base, c[0], c[1]); status >= 300 {
			t.Fatal(c, status, text)
		}
	}
	cmd := exec.CommandContext(t.Context(), harnessprograms.Path(t, "lapse"),
		"forward", "carts", server.URL, "--secret-file", file, "--since", "1h", "--server", l.NATSURL)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	var got []string
	harness.Until(t, harness.Limit, "the event takes effect", func(context.Context) error {
		got = nil
		return db.View(func(tx *bbolt.Tx) error {
			b := tx.Bucket(effects)
			if b == nil {
				return errors.New("there is none")
			}
			return b.ForEach(func(k, _ []byte) error { got = append(got, string(k)); return nil })
		})
	})
	if want := []string{"1 lapse.document.expired.v1 7"}; !slices.Equal(got, want) {
		t.Errorf("the effects are %q, want %q", got, want)
	}
}
