package browser

import (
	"context"
	"fmt"
	"testing"

	"github.com/chromedp/chromedp/kb"

	"github.com/seed18712806/lapse/integration/harness"
	"github.com/seed18712806/lapse/sink/client"
)

// queries: a person asks for documents by their values, reads what is wrong beside the field, and declares the index.
func (r *rig) queries(t *testing.T) {
	c := r.collection(t, "asked", client.Never)
	for i := range 30 {
		put(t, c, fmt.Sprint("order-", i), document{"customer": fmt.Sprint("c", i%3), "price": i})
	}
	b := r.tab(t)
	b.expect("status of 400")
	b.open("/console/collections/asked")
	b.click("#where")
	b.press("customer=c1 price>=10")
	b.clickTo("#query-form button")
	b.untilText("#where-error", "lapse config asked --index")
	b.inspect("query-refused")

	b.clickTo("#declare")
	b.click("#indexes")
	b.press("customer", kb.Enter, "price")
	b.clickTo("#preview")
	b.clickTo("#save")
	b.untilText("#is-indexes", "/customer, /price")
	harness.Until(t, harness.Limit, "the indexes are made", func(ctx context.Context) error {
		count, err := r.client.Count(ctx, c.Name())
		for _, index := range count.Indexes {
			if index.Making != nil {
				err = fmt.Errorf("%+v", index)
			}
		}
		return err
	})
	b.click("#where")
	b.press("customer=c1 price>=10")
	b.typeIn("#order-by", "-price")
	b.follow("the results", func() { b.press(kb.Enter) })
	b.untilText("#what", "Live documents of the query")
	if n, first := b.count("#documents tbody tr"), b.text("#documents tbody tr th"); n != 7 || first != "order-28" {
		t.Errorf("the query has %d documents, and %s first", n, first)
	}
	b.inspect("query")
}
