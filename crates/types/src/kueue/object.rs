//! What all kinds have in common: their names, their scope, and that they say which kind they are.

use std::{fmt, marker::PhantomData};

use k8s_openapi::Resource;
use serde::{Deserialize, Deserializer, Serialize, Serializer, de::Error};

/// The `apiVersion` of an object of this API, which is always the same.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ApiVersion;

impl Serialize for ApiVersion {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(super::API_VERSION)
    }
}

impl<'de> Deserialize<'de> for ApiVersion {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let version = String::deserialize(deserializer)?;
        if version == super::API_VERSION {
            return Ok(ApiVersion);
        }
        Err(D::Error::custom(format!("apiVersion is {version:?} instead of {:?}", super::API_VERSION)))
    }
}

/// The `kind` of an object of type `T`, which is always the same.
pub struct Kind<T>(PhantomData<fn() -> T>);

impl<T: Resource> Serialize for Kind<T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(T::KIND)
    }
}

impl<'de, T: Resource> Deserialize<'de> for Kind<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let kind = String::deserialize(deserializer)?;
        if kind == T::KIND {
            return Ok(Kind::default());
        }
        Err(D::Error::custom(format!("kind is {kind:?} instead of {:?}", T::KIND)))
    }
}

impl<T> Default for Kind<T> {
    fn default() -> Self {
        Kind(PhantomData)
    }
}

impl<T> Clone for Kind<T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for Kind<T> {}

impl<T> PartialEq for Kind<T> {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl<T: Resource> fmt::Debug for Kind<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(T::KIND)
    }
}

/// Says of an object's type what clients have to know to ask for it.
macro_rules! resource {
    ($name:ident, $plural:literal, $scope:ident) => {
        impl k8s_openapi::Resource for $name {
            const API_VERSION: &'static str = $crate::kueue::API_VERSION;
            const GROUP: &'static str = $crate::kueue::GROUP;
            const KIND: &'static str = stringify!($name);
            const VERSION: &'static str = $crate::kueue::VERSION;
            const URL_PATH_SEGMENT: &'static str = $plural;
            type Scope = k8s_openapi::$scope;
        }

        impl k8s_openapi::Metadata for $name {
            type Ty = k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

            fn metadata(&self) -> &Self::Ty {
                &self.metadata
            }

            fn metadata_mut(&mut self) -> &mut Self::Ty {
                &mut self.metadata
            }
        }
    };
}
pub(super) use resource;
