package harness

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/seed18712806/lapse/integration/harness/programs"
	"github.com/seed18712806/lapse/sink/credentials"
)

// Lapse is `lapse serve` in a process of its own. Its ports and its data outlive the
// process, so that it can be started again.
type Lapse struct {
	*Process
	HTTP    string // address of /healthz, /readyz and /metrics
	NATSURL string // of the NATS server that it uses or embeds
	Redis   string // address of the Redis that it uses or embeds
	Env     []string
}

// EmbeddedLapse starts lapse with NATS and Redis embedded, and waits until it is ready.
func EmbeddedLapse(t testing.TB, flags ...string) *Lapse {
	t.Helper()
	l := PrepareEmbedded(t, flags...)
	l.Start()
	return l
}

// PrepareEmbedded is EmbeddedLapse, but does not start it.
func PrepareEmbedded(t testing.TB, flags ...string) *Lapse {
	t.Helper()
	natsAt, redisAt := Address(FreePort(t)), Address(FreePort(t))
	flags = append([]string{"--nats-listen", natsAt, "--redis-listen", redisAt}, flags...)
	l := PrepareLapse(t, flags...)
	l.args = append(l.args, "--data", filepath.Join(l.dir, "data"))
	l.NATSURL, l.Redis = "nats://"+natsAt, redisAt
	return l
}

// StartLapse starts lapse on servers, and waits until it is ready. The NATS URL and the
// Redis address may be those of a [Proxy].
func StartLapse(t testing.TB, natsURL, redis string, flags ...string) *Lapse {
	t.Helper()
	l := PrepareLapse(t, append([]string{"--nats", natsURL, "--redis", "redis://" + redis}, flags...)...)
	l.NATSURL, l.Redis = natsURL, redis
	l.Start()
	return l
}

// ClosedCollections is a flag of tests in which a collection exists only once it was configured. Without it a write
// makes a collection.
const ClosedCollections = "--open-collections=false"

// PrepareLapse makes `lapse serve` with --http-listen and these flags, and does not
// start it.
func PrepareLapse(t testing.TB, flags ...string) *Lapse {
	t.Helper()
	l := &Lapse{HTTP: Address(FreePort(t))}
	l.Process = newProcess(t, "lapse", programs.ToServe(t))
	if slices.Contains(flags, "--nats") { // a test kills servers, and takes no power from them
		flags = append([]string{"--nats-sync-interval", "always"}, flags...)
	}
	if !slices.Contains(flags, ClosedCollections) {
		flags = append([]string{"--open-collections"}, flags...)
	}
	l.args = append([]string{"serve", "--http-listen", l.HTTP}, append(flags, asLapse(t, flags)...)...)
	l.forbidden = []string{"WARNING: DATA RACE", "panic:", "fatal error:"}
	return l
}

// Start starts lapse (again) with the same flags, and waits until it is ready.
func (l *Lapse) Start() {
	l.t.Helper()
	l.Launch()
	l.Ready()
}

// Launch is Start, but does not wait.
func (l *Lapse) Launch() {
	l.t.Helper()
	l.env = append([]string{"GORACE=halt_on_error=1"}, l.Env...)
	l.start()
}

// Ready waits until /readyz answers 200.
func (l *Lapse) Ready() {
	l.t.Helper()
	Until(l.t, Limit, "lapse is ready", func(ctx context.Context) error {
		if err := l.ended(); err != nil {
			return err
		}
		return l.ReadyNow(ctx)
	})
}

// ReadyNow requests /readyz once, and returns its reasons unless it answers 200.
func (l *Lapse) ReadyNow(ctx context.Context) error {
	status, body, err := l.get(ctx, "/readyz")
	if err == nil && status != http.StatusOK {
		err = fmt.Errorf("/readyz answers %d: %s", status, strings.TrimSpace(body))
	}
	return err
}

// Reload sends SIGHUP: lapse reads its files again.
func (l *Lapse) Reload() { l.t.Helper(); l.signal(syscall.SIGHUP) }

// Metrics returns the text of /metrics.
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
	client := http.Client{Timeout: 30 * time.Second, Transport: &http.Transport{DisableKeepAlives: true}}
	resp, err := client.Do(req)
	if err != nil {
		return 0, "", err
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	return resp.StatusCode, string(b), err
}

// FailsToStart starts lapse, expects it to end with code 1, and returns its log.
func (l *Lapse) FailsToStart() string {
	l.t.Helper()
	l.Launch()
	if code := l.WaitEnded(); code != 1 {
		l.t.Errorf("lapse ended with code %d, want 1", code)
	}
	return l.Log()
}

// Refuses starts lapse (again), and waits until /readyz names a refusal. lapse stays up. It returns the
// answer.
func (l *Lapse) Refuses() string {
	l.t.Helper()
	if !l.Running() {
		l.Launch()
	}
	var why error
	Until(l.t, Limit, "lapse refuses a shard", func(ctx context.Context) error {
		if err := l.ended(); err != nil {
			return err
		}
		if why = l.ReadyNow(ctx); why == nil || !strings.Contains(why.Error(), "refused: ") {
			return fmt.Errorf("/readyz: %w", why)
		}
		return nil
	})
	return why.Error()
}

// FlagsIn are the flags of lapse begin-anew that a refusal names.
func (l *Lapse) FlagsIn(why string) []string {
	l.t.Helper()
	m := regexp.MustCompile(`run lapse begin-anew ((--[a-z-]+ )+)\(`).FindStringSubmatch(why)
	if m == nil {
		l.t.Fatalf("the refusal names no flag: %s", why)
	}
	return strings.Fields(m[1])
}

// BeginAnew runs lapse begin-anew with flags, on the servers of the process. It has to end with a code.
// It returns what it prints.
func (l *Lapse) BeginAnew(flags []string, code int) string {
	l.t.Helper()
	args := append([]string{"begin-anew"}, flags...)
	for i, flag := range l.args {
		if slices.Contains([]string{"--nats", "--nats-user", "--nats-password-file", "--redis", "--redis-user",
			"--redis-password-file", "--data", "--prefix", "--shards"}, flag) {
			args = append(args, flag, l.args[i+1])
		}
	}
	out, errOut, ended := Run(l.t, "lapse", nil, args...)
	if ended != code {
		l.t.Fatalf("lapse begin-anew ended with code %d, want %d: %s%s", ended, code, out, errOut)
	}
	return out + errOut
}

// RedisClient connects to the Redis that an embedded lapse opens, until the test ends. Each start of
// lapse makes another password.
func (l *Lapse) RedisClient() *redis.Client {
	opts := redisOptions(l.Redis)
	opts.CredentialsProviderContext = credentials.Redis{PasswordFile: filepath.Join(l.Data(), "redis-password")}.Login
	client := redis.NewClient(opts)
	l.t.Cleanup(func() { _ = client.Close() })
	return client
}

// Data returns the data directory of an embedded lapse.
func (l *Lapse) Data() string { return filepath.Join(l.dir, "data") }

// environment returns the environment of the test without the variables of lapse, but with those of package held.
func environment() []string {
	var env []string
	for _, e := range os.Environ() {
		if !strings.HasPrefix(e, "LAPSE_") || strings.HasPrefix(e, "LAPSE_HELD") {
			env = append(env, e)
		}
	}
	return env
}
