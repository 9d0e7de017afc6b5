package elsewhere

import (
	"fmt"
	"io"
	"net/http"
	"os/exec"
	"strconv"
	"strings"
	"testing"

	"github.com/seed18712806/lapse/integration/harness"
)

// pathClient sends one request with a path as it is, follows redirects if clients of its kind do,
// and returns the status and the body of the answer.
type pathClient func(t *testing.T, method, base, path, body string) (status int, text string)

// pathClients are the clients that people use. Each leaves a path as it is.
var pathClients = map[string]pathClient{
	"go": func(t *testing.T, method, base, path, body string) (int, string) {
		req, err := http.NewRequestWithContext(t.Context(), method, base+path, strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = resp.Body.Close() }()
		text, err := io.ReadAll(resp.Body)
		if err != nil {
			t.Fatal(err)
		}
		return resp.StatusCode, string(text)
	},
	"curl": func(t *testing.T, method, base, path, body string) (int, string) {
		args := []string{"--silent", "--show-error", "--location", "--path-as-is", "--request", method, "--write-out",
			"\n%{http_code}", base + path}
		if body != "" {
			args = append(args, "--json", body)
		}
		return run(t, "curl", args...)
	},
	"node": func(t *testing.T, method, base, path, body string) (int, string) {
		return run(t, "node", "-e", `
			const [method, base, path, body] = process.argv.slice(1);
			const at = new URL(base);
			const req = require("node:http").request({ method, host: at.hostname, port: at.port, path }, (res) => {
				res.pipe(process.stdout, { end: false });
				res.on("end", () => console.log("\n" + res.statusCode));
			});
			req.end(body);`, method, base, path, body)
	},
	"python": func(t *testing.T, method, base, path, body string) (int, string) {
		return run(t, "python3", "-c", `
import http.client, sys
method, base, path, body = sys.argv[1:]
connection = http.client.HTTPConnection(base.removeprefix("http://"))
connection.request(method, path, body)
answer = connection.getresponse()
print(answer.read().decode() + "\n" + str(answer.status))`, method, base, path, body)
	},
}

// run runs a client. Its last line is the status.
func run(t *testing.T, name string, args ...string) (int, string) {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), name, args...).CombinedOutput()
	if err != nil {
		t.Fatalf("%s %q: %v\n%s", name, args, err, out)
	}
	text := strings.TrimSpace(string(out))
	end := strings.LastIndexByte(text, '\n') + 1
	status, err := strconv.Atoi(text[end:])
	if err != nil {
		t.Fatalf("%s %q printed no status: %s", name, args, out)
	}
	return status, text[:end]
}

// TestPathsAsTheyAreSent: a request for .. in a collection does nothing to the collection, and
// ids that look like folders are reached percent-encoded, by the clients that people use.
func TestPathsAsTheyAreSent(t *testing.T) {
	base := "http://" + harness.EmbeddedLapse(t).HTTP
	const collection = "/v1/collections/danger"
	for path, body := range map[string]string{collection: `{"defaultTtl":3600}`, collection +
		"/documents/1": `{"n":1}`} {
		if status, text := pathClients["go"](t, "PUT", base, path, body); status >= 300 {
			t.Fatal(path, status, text)
		}
	}
	_, before := pathClients["go"](t, "GET", base, collection, "")
	for name, send := range pathClients {
		t.Run(name, func(t *testing.T) {
			want := func(method, path, body string, status int, part string) {
				t.Helper()
				got, text := send(t, method, base, path, body)
				if got != status || !strings.Contains(text, part) {
					t.Errorf("%s %s: %d, want %d and %q\n%s", method, path, got, status, part, text)
				}
			}
			for _, c := range [][3]string{{"DELETE", "", ""}, {"PUT", "", "{}"}, {"GET", "", ""},
				{"POST", "/touch", ""}} {
				for _, id := range []string{"..", ".", ""} {
					want(c[0], collection+"/documents/"+id+c[1], c[2], 400, "where a name belongs")
				}
			}
			for _, path := range []string{collection + "/documents/../..", "/v1/collections/x/../danger",
				"/v1//collections/danger", "//v1/collections/danger", "/./v1/collections/danger"} {
				want("DELETE", path, "", 404, "")
			}
			for i, id := range []string{"%2E", "%2E%2E", "%2F", "%2F%2F", "..%2F.."} {
				path := collection + "/documents/" + id
				body := fmt.Sprintf(`{"n":"%s%d"}`, name, i)
				want("PUT", path, body, 201, `"status":201`)
				want("GET", path, "", 200, body)
				want("POST", path+"/touch", "", 200, `"status":200`)
				want("DELETE", path, "", 204, "")
				want("GET", path, "", 404, "not-found")
			}
		})
	}
	if _, after := pathClients["go"](t, "GET", base, collection, ""); after != before ||
		!strings.Contains(after, `"defaultTtl":3600`) {
		t.Errorf("the collection was %s, and is %s", before, after)
	}
	if status, text := pathClients["go"](t, "GET", base, collection+"/documents/1", ""); status != 200 ||
		text != `{"n":1}` {
		t.Errorf("its document is %d %s", status, text)
	}
}
