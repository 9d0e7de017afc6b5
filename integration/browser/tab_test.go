package browser

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"

	"github.com/seed18712806/lapse/integration/harness"
)

// tab is a tab of the browser, as a person uses it. Each of its methods waits for what it needs,
// and fails the test after harness.Limit.
type tab struct {
	t   *testing.T
	r   *rig
	ctx context.Context

	mu       sync.Mutex
	problems []string       // that the browser has reported
	expected *regexp.Regexp // problems that the test provokes
}

// tab opens a tab until the test ends. Then the browser must not have reported any problem.
func (r *rig) tab(t *testing.T) *tab {
	t.Helper()
	ctx, stop := chromedp.NewContext(r.browser)
	b := &tab{t: t, r: r, ctx: ctx}
	t.Cleanup(func() {
		stop()
		_ = chromedp.WaitClosed(ctx)
		for _, p := range b.seen() {
			t.Errorf("the browser reports: %s", p)
		}
	})
	if err := chromedp.Listen(ctx, b.hear); err != nil {
		t.Fatalf("open a tab: %v", err)
	}
	b.size(desktop)
	b.theme("light")
	return b
}

// hear notes what must not happen in a page.
func (b *tab) hear(event any) {
	switch e := event.(type) {
	case *runtime.EventExceptionThrown:
		b.note("exception: %s %s", e.ExceptionDetails.Text, described(e.ExceptionDetails.Exception))
	case *runtime.EventConsoleAPICalled:
		var args []string
		for _, a := range e.Args {
			args = append(args, described(a))
		}
		b.note("console.%s: %s", e.Type, strings.Join(args, " "))
	case *log.EventEntryAdded: // violations of the content security policy, too
		if e.Entry.Source == log.EntrySourceRecommendation {
			return // a token is a password without a user
		}
		b.note("%s %s: %s %s", e.Entry.Source, e.Entry.Level, e.Entry.Text, e.Entry.URL)
	case *network.EventRequestWillBeSent:
		if u, err := url.Parse(e.Request.URL); err != nil || u.Host != b.r.lapse.HTTP {
			b.note("a request to another host: %s", e.Request.URL)
		}
	}
}

// described is a value of JavaScript as text.
func described(o *runtime.RemoteObject) string {
	if o == nil {
		return ""
	}
	return string(o.Value) + o.Description
}

func (b *tab) note(format string, args ...any) {
	b.mu.Lock()
	defer b.mu.Unlock()
	text := fmt.Sprintf(format, args...)
	if b.expected == nil || !b.expected.MatchString(text) {
		b.problems = append(b.problems, text)
	}
}

// seen returns the problems, and forgets them.
func (b *tab) seen() []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	p := b.problems
	b.problems = nil
	return p
}

// expect names a problem that the test provokes.
func (b *tab) expect(problem string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.expected = regexp.MustCompile(problem)
}

// do runs actions within the limit.
func (b *tab) do(what string, actions ...chromedp.Action[chromedp.Void]) {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(b.ctx, harness.Limit)
	defer cancel()
	if err := chromedp.Do(ctx, actions...); err != nil {
		b.t.Fatalf("%s: %v\n%s", what, err, b.page())
	}
}

// page is the text of the page, for the message of a failure.
func (b *tab) page() string {
	ctx, cancel := context.WithTimeout(b.ctx, 5*time.Second)
	defer cancel()
	text, err := chromedp.Run(ctx, chromedp.Evaluate[string](`location.href + "\n" + document.body.innerText`))
	if err != nil {
		return err.Error()
	}
	return text
}

// open opens a page of lapse.
func (b *tab) open(path string) {
	b.t.Helper()
	b.do("open "+path, chromedp.Navigate("http://"+b.r.lapse.HTTP+path))
}

// click clicks an element, which stays on the same page. Like a person it clicks where the element
// is: a refresh may put another one in its place meanwhile.
func (b *tab) click(selector string) {
	b.t.Helper()
	b.until(selector+" is there", fmt.Sprintf("window.clickAt = (() => {"+
		"const e = document.querySelector(%s); e?.scrollIntoView({ block: 'center', behavior: 'instant' });"+
		"const r = e?.getClientRects()[0]; return r && [r.x + r.width / 2, r.y + r.height / 2] })()", quote(selector)))
	at := eval[[]float64](b, "window.clickAt")
	b.do("click "+selector, chromedp.MouseClickXY(at[0], at[1]))
}

// follow does what leads to another page, and waits for that page.
func (b *tab) follow(what string, lead func()) {
	b.t.Helper()
	eval[bool](b, `window.isOld = true`)
	lead()
	b.until(what+" leads to another page", `!window.isOld && document.readyState === "complete"`)
}

// clickTo clicks an element that leads to another page, and waits for that page.
func (b *tab) clickTo(selector string) {
	b.t.Helper()
	b.follow("a click on "+selector, func() { b.click(selector) })
}

// typeIn replaces the text of a field by typing.
func (b *tab) typeIn(selector, text string) {
	b.t.Helper()
	b.do("type into "+selector, chromedp.Clear(chromedp.CSS(selector)), chromedp.SendKeys(chromedp.CSS(selector), text))
}

// press presses keys: those of package kb, and texts.
func (b *tab) press(keys ...string) {
	b.t.Helper()
	for _, k := range keys {
		b.do("press "+strconv.Quote(k), chromedp.KeyEvent(k))
	}
}

// quote is a text as an expression of JavaScript and JSON, as a person would write it.
func quote(text string) string {
	var b strings.Builder
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	_ = enc.Encode(text) // a string has no error
	return strings.TrimSuffix(b.String(), "\n")
}

// eval returns the value of a JavaScript expression.
func eval[T any](b *tab, expression string) T {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(b.ctx, harness.Limit)
	defer cancel()
	value, err := chromedp.Run(ctx, chromedp.Evaluate[T](expression, chromedp.EvalAwaitPromise))
	if err != nil {
		b.t.Fatalf("%s: %v\n%s", expression, err, b.page())
	}
	return value
}

// until waits until a JavaScript expression is true.
func (b *tab) until(what, expression string) {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(b.ctx, harness.Limit)
	defer cancel()
	for pause := 5 * time.Millisecond; ; pause = min(2*pause, 100*time.Millisecond) {
		// While the tab goes to another page, there is nothing to ask.
		met, err := chromedp.Run(ctx, chromedp.Evaluate[bool]("Boolean("+expression+")"))
		if err == nil && met {
			return
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			b.t.Fatalf("wait until %s: not within %s: %s (%v)\n%s", what, harness.Limit, expression, err, b.page())
		}
	}
}

// untilText waits until the text of an element contains a text.
func (b *tab) untilText(selector, text string) {
	b.t.Helper()
	b.until(fmt.Sprintf("%s shows %q", selector, text),
		fmt.Sprintf("document.querySelector(%s)?.innerText.includes(%s)", quote(selector), quote(text)))
}

// text is the text of an element that is there.
func (b *tab) text(selector string) string {
	b.t.Helper()
	return eval[string](b, fmt.Sprintf("document.querySelector(%s).innerText", quote(selector)))
}

// value is what is in a field.
func (b *tab) value(selector string) string {
	b.t.Helper()
	return eval[string](b, fmt.Sprintf("document.querySelector(%s).value", quote(selector)))
}

// once is one attempt of harness.Until.
func (b *tab) once(try func() bool) func(context.Context) error {
	return func(context.Context) error {
		if !try() {
			return errors.New(b.page())
		}
		return nil
	}
}

// count is how many elements there are.
func (b *tab) count(selector string) int {
	b.t.Helper()
	return eval[int](b, fmt.Sprintf("document.querySelectorAll(%s).length", quote(selector)))
}

// screen is the size of a window.
type screen struct {
	name          string
	width, height int64
}

var (
	desktop = screen{"desktop", 1440, 900}
	phone   = screen{"phone", 360, 740}
)

func (b *tab) size(s screen) {
	b.t.Helper()
	params := emulation.SetDeviceMetricsOverrideParams{Width: s.width, Height: s.height, DeviceScaleFactor: 1}
	if _, err := chromedp.Call(b.ctx, emulation.SetDeviceMetricsOverride, params); err != nil {
		b.t.Fatal(err)
	}
}

// theme is "light" or "dark".
func (b *tab) theme(name string) {
	b.t.Helper()
	params := emulation.SetEmulatedMediaParams{Features: []*emulation.MediaFeature{
		{Name: "prefers-color-scheme", Value: name}, {Name: "prefers-reduced-motion", Value: "reduce"},
	}}
	if _, err := chromedp.Call(b.ctx, emulation.SetEmulatedMedia, params); err != nil {
		b.t.Fatal(err)
	}
}

// withoutJavaScript turns it off for the page. The test itself still evaluates expressions.
func (b *tab) withoutJavaScript() {
	b.t.Helper()
	if _, err := chromedp.Call(b.ctx, emulation.SetScriptExecutionDisabled,
		emulation.SetScriptExecutionDisabledParams{Value: true}); err != nil {
		b.t.Fatal(err)
	}
}
