// Package manifests holds the chart, the plain manifests and the compose file against the projects' own types.
package manifests

import (
	"flag"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"

	monitoring "github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1"
	"helm.sh/helm/v3/pkg/chart/loader"
	"helm.sh/helm/v3/pkg/chartutil"
	"helm.sh/helm/v3/pkg/engine"
	apps "k8s.io/api/apps/v1"
	core "k8s.io/api/core/v1"
	networking "k8s.io/api/networking/v1"
	policy "k8s.io/api/policy/v1"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"sigs.k8s.io/yaml"
)

var update = flag.Bool("update", false, "write deploy/kubernetes/lapse.yaml")

const (
	chartFolder = "../../helm/lapse"
	plainFile   = "../../kubernetes/lapse.yaml"
	plainHead   = "# The chart deploy/helm/lapse as it is rendered for a release named app, for those who have no Helm. values.yaml has the comments.\n"
)

// render returns the chart's documents for some values, in the order of their files.
func render(t *testing.T, values map[string]any) (documents []string) {
	t.Helper()
	chart, err := loader.Load(chartFolder)
	if err != nil {
		t.Fatal(err)
	}
	all, err := chartutil.ToRenderValues(chart, values, chartutil.ReleaseOptions{Name: "app", Namespace: "lapse"}, nil)
	if err != nil {
		t.Fatal(err)
	}
	files, err := engine.Render(chart, all)
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range slices.Sorted(maps.Keys(files)) {
		for document := range strings.SplitSeq(files[name], "\n---\n") {
			if text := strings.Trim(document, "\n"); text != "" && strings.HasSuffix(name, ".yaml") {
				documents = append(documents, text+"\n")
			}
		}
	}
	return documents
}

// cluster is what the documents would make.
type cluster struct {
	config      *core.ConfigMap
	deployments map[string]*apps.Deployment // by component
	budgets     map[string]*policy.PodDisruptionBudget
	network     *networking.NetworkPolicy
	monitor     *monitoring.PodMonitor
}

// decode reads the documents, and refuses a field that its kind does not have.
func decode(t *testing.T, documents []string) *cluster {
	t.Helper()
	c := &cluster{deployments: map[string]*apps.Deployment{}, budgets: map[string]*policy.PodDisruptionBudget{}}
	for _, document := range documents {
		var kind meta.TypeMeta
		if err := yaml.Unmarshal([]byte(document), &kind); err != nil {
			t.Fatalf("%v in\n%s", err, document)
		}
		var into any
		switch kind.APIVersion + " " + kind.Kind {
		case "v1 ConfigMap":
			c.config = &core.ConfigMap{}
			into = c.config
		case "apps/v1 Deployment":
			into = &apps.Deployment{}
		case "policy/v1 PodDisruptionBudget":
			into = &policy.PodDisruptionBudget{}
		case "networking.k8s.io/v1 NetworkPolicy":
			c.network = &networking.NetworkPolicy{}
			into = c.network
		case "monitoring.coreos.com/v1 PodMonitor":
			c.monitor = &monitoring.PodMonitor{}
			into = c.monitor
		default:
			t.Fatalf("a %s %s is not expected", kind.APIVersion, kind.Kind)
		}
		if err := yaml.UnmarshalStrict([]byte(document), into); err != nil {
			t.Fatalf("%v in\n%s", err, document)
		}
		const component = "app.kubernetes.io/component"
		switch is := into.(type) {
		case *apps.Deployment:
			c.deployments[is.Spec.Selector.MatchLabels[component]] = is
		case *policy.PodDisruptionBudget:
			c.budgets[is.Spec.Selector.MatchLabels[component]] = is
		}
	}
	return c
}

func TestTheChartMakesWhatItSays(t *testing.T) {
	for name, values := range map[string]map[string]any{
		"as it is": {},
		"one of each, and no operator": {
			"executors": 1, "auditors": 1, "podMonitor": map[string]any{"enabled": false}, "networkPolicy": map[string]any{"enabled": false},
		},
		"many": {"executors": 7, "auditors": 3, "config": map[string]any{"log_name": "a \"name\": with # signs", "kafka": map[string]any{"brokers": []any{"[::1]:9092"}}}},
	} {
		t.Run(name, func(t *testing.T) {
			c := decode(t, render(t, values))
			if len(c.deployments) != 2 || len(c.budgets) != 2 || c.config == nil {
				t.Fatalf("it makes %d deployments and %d budgets", len(c.deployments), len(c.budgets))
			}
			if on := values["podMonitor"] == nil; (c.monitor != nil) != on || (c.network != nil) != on {
				t.Errorf("monitor and network policy are there: %t, %t, want %t", c.monitor != nil, c.network != nil, on)
			}
			for component, d := range c.deployments {
				checkDeployment(t, component, d, c)
			}
			if keys := c.deployments["executor"].Spec.Template.Spec.Volumes[1].Secret.Items; len(keys) != 1 || keys[0].Key != "tag" {
				t.Errorf("the executor has the keys %v, and needs one", keys)
			}
			var settings map[string]any
			if err := yaml.Unmarshal([]byte(c.config.Data["lapse.yaml"]), &settings); err != nil || settings["kafka"] == nil {
				t.Errorf("lapse.yaml: %v\n%s", err, c.config.Data["lapse.yaml"])
			}
		})
	}
}

func checkDeployment(t *testing.T, component string, d *apps.Deployment, c *cluster) {
	t.Helper()
	pod := d.Spec.Template
	for what, selector := range map[string]*meta.LabelSelector{"deployment": d.Spec.Selector, "budget": c.budgets[component].Spec.Selector} {
		if !matches(t, selector, pod.Labels) {
			t.Errorf("the %s of the %s does not select its pods", what, component)
		}
	}
	if c.network != nil && !matches(t, &c.network.Spec.PodSelector, pod.Labels) || c.monitor != nil && !matches(t, &c.monitor.Spec.Selector, pod.Labels) {
		t.Errorf("monitor or network policy do not select the %s", component)
	}
	for other := range c.deployments {
		if other != component && matches(t, c.deployments[other].Spec.Selector, pod.Labels) {
			t.Errorf("the deployment of the %s selects pods of the %s", other, component)
		}
	}
	security, container := pod.Spec.SecurityContext, pod.Spec.Containers[0]
	own := container.SecurityContext
	if !*security.RunAsNonRoot || *security.RunAsUser != 65532 || *security.FSGroup != 65532 || !*own.ReadOnlyRootFilesystem ||
		*own.AllowPrivilegeEscalation || !slices.Equal(own.Capabilities.Drop, []core.Capability{"ALL"}) || *pod.Spec.AutomountServiceAccountToken {
		t.Errorf("the %s may do more than it needs: %v, %v", component, security, own)
	}
	budget := c.budgets[component].Spec
	if alone := *d.Spec.Replicas == 1; alone != (budget.MinAvailable == nil) || alone != (budget.MaxUnavailable != nil) {
		t.Errorf("of %d pods of the %s %v must stay, and %v may go", *d.Spec.Replicas, component, budget.MinAvailable, budget.MaxUnavailable)
	}
	mounted := map[string]bool{}
	for _, m := range container.VolumeMounts {
		mounted[m.Name] = m.ReadOnly
	}
	for _, v := range pod.Spec.Volumes {
		if !mounted[v.Name] {
			t.Errorf("the %s does not mount %s read-only", component, v.Name)
		}
		if v.Secret != nil && *v.Secret.DefaultMode != 0o440 {
			t.Errorf("the keys of the %s have mode %04o", component, *v.Secret.DefaultMode)
		}
	}
}

func matches(t *testing.T, selector *meta.LabelSelector, of map[string]string) bool {
	t.Helper()
	s, err := meta.LabelSelectorAsSelector(selector)
	if err != nil {
		t.Fatal(err)
	}
	return s.Matches(labels.Set(of))
}

func TestThePlainManifestsAreTheCharts(t *testing.T) {
	got := plainHead + "---\n" + strings.Join(render(t, nil), "---\n")
	if *update {
		if err := os.WriteFile(plainFile, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(plainFile)
	if err != nil {
		t.Fatal(err)
	}
	if got != string(want) {
		t.Errorf("%s differs from the chart: run go test ./manifests -update", plainFile)
	}
	decode(t, strings.Split(strings.TrimPrefix(string(want), plainHead+"---\n"), "---\n"))
}

// A field that Kubernetes does not have must not pass: the test could not fail otherwise.
func TestAMisspelledFieldIsRefused(t *testing.T) {
	err := yaml.UnmarshalStrict([]byte("apiVersion: apps/v1\nkind: Deployment\nspec: { replica: 2 }\n"), &apps.Deployment{})
	if err == nil || !strings.Contains(fmt.Sprint(err), "replica") {
		t.Errorf("got %v", err)
	}
}
