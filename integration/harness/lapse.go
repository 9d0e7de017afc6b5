package harness

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// Lapse is `lapse serve` in a process of its own. Its ports and its data
// outlive it: see [Lapse.Start].
type Lapse struct {
	*Process
	HTTP    string // address of /healthz, /readyz and /metrics
	NATSURL string // of the NATS it uses, or embeds
	Redis   string // address of the Redis it uses, or embeds
	Env     []string
}

// EmbeddedLapse starts lapse with its own NATS and Redis, with more flags if
// given, and waits until it is ready.
func EmbeddedLapse(t testing.TB, flags ...string) *Lapse {
	t.Helper()
	l := PrepareEmbedded(t, flags...)
	l.Start()
	return l
}

// PrepareEmbedded is EmbeddedLapse, not started yet.
func PrepareEmbedded(t testing.TB, flags ...string) *Lapse {
	t.Helper()
	natsAt, redisAt := Address(FreePort(t)), Address(FreePort(t))
	flags = append([]string{"--nats-listen", natsAt, "--redis-listen", redisAt}, flags...)
	l := PrepareLapse(t, flags...)
	l.args = append(l.args, "--data", filepath.Join(l.dir, "data"))
	l.NATSURL, l.Redis = "nats://"+natsAt, redisAt
	return l
}

// StartLapse starts lapse on a NATS (a URL) and a Redis (an address), which may
// be those of a [Proxy], with more flags if given, and waits until it is ready.
func StartLapse(t testing.TB, natsURL, redis string, flags ...string) *Lapse {
	t.Helper()
	l := PrepareLapse(t, append([]string{"--nats", natsURL, "--redis", "redis://" + redis}, flags...)...)
	l.NATSURL, l.Redis = natsURL, redis
	l.Start()
	return l
}

// PrepareLapse makes `lapse serve` with exactly these flags, and --http-listen,
// not started yet.
func PrepareLapse(t testing.TB, flags ...string) *Lapse {
	t.Helper()
	l := &Lapse{HTTP: Address(FreePort(t))}
	l.Process = newProcess(t, "lapse", LapseBinary(t))
	l.args = append([]string{"serve", "--http-listen", l.HTTP}, flags...)
	l.forbidden = []string{"WARNING: DATA RACE", "panic:", "fatal error:"}
	return l
}

// Start starts it (again), with the same flags, and waits until it is ready.
func (l *Lapse) Start() {
	l.t.Helper()
	l.Launch()
	l.Ready()
}

// Launch starts it (again), with the same flags, and waits for nothing.
func (l *Lapse) Launch() {
	l.t.Helper()
	l.env = append([]string{"GORACE=halt_on_error=1"}, l.Env...)
	l.start()
}

// Ready waits until /readyz says that it is ready.
func (l *Lapse) Ready() {
	l.t.Helper()
	Until(l.t, Limit, "lapse is ready", func(ctx context.Context) error {
		if err := l.ended(); err != nil {
			return err
		}
		return l.ReadyNow(ctx)
	})
}

// ReadyNow asks /readyz once, and returns what it says if that is not yes.
func (l *Lapse) ReadyNow(ctx context.Context) error {
	status, body, err := l.get(ctx, "/readyz")
	if err == nil && status != http.StatusOK {
		err = fmt.Errorf("/readyz answers %d: %s", status, strings.TrimSpace(body))
	}
	return err
}

// Metrics is what /metrics says.
func (l *Lapse) Metrics() string {
	l.t.Helper()
	body, err := l.MetricsNow()
	if err != nil {
		l.t.Fatal(err)
	}
	return body
}

// MetricsNow is Metrics, but returns the error.
func (l *Lapse) MetricsNow() (string, error) {
	status, body, err := l.get(l.t.Context(), "/metrics")
	if err == nil && status != http.StatusOK {
		err = fmt.Errorf("/metrics answers %d", status)
	}
	return body, err
}

func (l *Lapse) get(ctx context.Context, path string) (int, string, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+l.HTTP+path, nil)
	if err != nil {
		return 0, "", err
	}
	client := http.Client{Timeout: 5 * time.Second, Transport: &http.Transport{DisableKeepAlives: true}}
	resp, err := client.Do(req)
	if err != nil {
		return 0, "", err
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	return resp.StatusCode, string(b), err
}

// FailsToStart starts it, expects it to end with code 1, and returns what it wrote.
func (l *Lapse) FailsToStart() string {
	l.t.Helper()
	l.Launch()
	Until(l.t, Limit, "lapse has refused to start", func(context.Context) error {
		if l.Running() {
			return errors.New("it still runs")
		}
		return nil
	})
	if code := l.ExitCode(); code != 1 {
		l.t.Errorf("lapse ended with code %d, want 1", code)
	}
	return l.Log()
}

// Data is the directory that an embedded lapse keeps its data in.
func (l *Lapse) Data() string { return filepath.Join(l.dir, "data") }

// environment is the test's own, without what would configure lapse.
func environment() []string {
	var env []string
	for _, e := range os.Environ() {
		if !strings.HasPrefix(e, "LAPSE_") {
			env = append(env, e)
		}
	}
	return env
}
