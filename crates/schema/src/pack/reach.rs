//! Which types lead to types of some sort.

use super::{Pack, Shape, Type};

/// The types of a pack below which there are some that matter to somebody, themselves included. It is found once, so that
/// whoever looks for these passes over everything else.
#[derive(Debug)]
pub struct Reach(Vec<bool>);

impl Reach {
    /// The types that lead to one that `matters`.
    pub fn of(pack: &'static Pack, matters: impl Fn(Type) -> bool) -> Self {
        let mut reached: Vec<bool> = pack.types().map(matters).collect();
        // Types refer to each other in circles: it is done when nothing more is found.
        loop {
            let found: Vec<Type> = pack
                .types()
                .filter(|of| {
                    !reached[usize::from(of.id())] && parts(*of).any(|part| reached[usize::from(part.id())])
                })
                .collect();
            if found.is_empty() {
                return Reach(reached);
            }
            for of in found {
                reached[usize::from(of.id())] = true;
            }
        }
    }

    /// Whether something that matters may stand in a value of a type.
    pub fn has(&self, of: Type) -> bool {
        self.0[usize::from(of.id())]
    }
}

/// The types that a type is made of.
fn parts(of: Type) -> impl Iterator<Item = Type> {
    let inner = match of.shape() {
        Shape::Pointer(inner)
        | Shape::List(inner)
        | Shape::Map(inner)
        | Shape::SchemaOrBool(inner)
        | Shape::SchemaOrArray(inner)
        | Shape::SchemaOrStrings(inner) => Some(inner),
        _ => None,
    };
    inner.into_iter().chain(of.fields().map(super::Field::of_type))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_matters_is_found_wherever_it_stands() {
        let pack = Pack::v1_35();
        let named = |name: &str| pack.named(name).expect("the pack has the type");
        let probes = Reach::of(pack, |of| of.name() == "io.k8s.api.core.v1.Probe");
        for name in ["api.core.v1.Probe", "api.core.v1.Container", "api.core.v1.Pod", "api.batch.v1.CronJob"]
        {
            assert!(probes.has(named(&format!("io.k8s.{name}"))), "{name}");
        }
        for name in ["api.core.v1.Event", "api.core.v1.PodStatus", "api.coordination.v1.Lease"] {
            assert!(!probes.has(named(&format!("io.k8s.{name}"))), "{name}");
        }
        // Schemas hold schemas.
        let schemas = Reach::of(pack, |of| of.name().ends_with(".ExternalDocumentation"));
        assert!(
            schemas.has(named(
                "io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.CustomResourceDefinition"
            ))
        );
        assert!(pack.types().all(|of| !Reach::of(pack, |_| false).has(of)));
    }
}
